"""The executor: owns runs under its session, decides with the engine, commits before it acts.

One loop. What happened since the last commit (answers of bodies, timers, mail, commands) is decided, its
records go out in one fenced transaction, and only then do effects that wait for the commit happen. When the
session is over, everything held here is forgotten: somebody else owns those runs. A run that meets a defect is
blocked alone.
"""

import asyncio
import random
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import structlog

from processors.engine import commands
from processors.engine.decide import decide
from processors.executor.commits import UNSTORABLE_BLOCK, commit_apart, defect_record, is_worth_a_commit, leave_out
from processors.executor.effects import EffectRunner, Waiting
from processors.executor.endings import CRASH_LOOP
from processors.executor.hinted import Granted, Hinted
from processors.executor.late import LateResults
from processors.executor.listener import Listener
from processors.executor.live_run import LiveRun
from processors.executor.mail import open_mail
from processors.executor.recall import recalled
from processors.ports import crash_points
from processors.ports.bodies import Bodies, BodyListener
from processors.ports.journal import Batch, Claim, Entry, Journal, Release, SessionOver, UnreadableLog
from processors.ports.measures import Measures
from schemas.errors import AutomationError, Broken, Refused, Unavailable
from schemas.records import ErrorInfo, Record

_log = structlog.get_logger("executor")

LONGEST_MARGIN_SECONDS = 3.0
LONGEST_POLL_SECONDS = 2.0
SHARE_OF_LEASE = 6.0
MAIL_POLLS = 3
DRAIN_SECONDS = 6.0
MOST_BATCH_BYTES = 8 * 1024 * 1024
RECORD_BYTES = 200  # of a record without its value, about
KindOf = Callable[[int], Awaitable[str]]


class Executor:
    """`slots` bounds the runs held at once, `lease` is the journal's in seconds; `kind_of(definition id)` tells yaml
    from code. Polls, which renew the lease, and the margin before its end are a share of it. `on_told` is called after
    a commit that told the world something: a run ended or is blocked.
    """

    def __init__(
        self,
        journal: Journal,
        kind_of: KindOf,
        run_events_topic: str,
        slots: int,
        lease: float,
        on_told: Callable[[], None] = lambda: None,
        measures: Measures | None = None,
    ) -> None:
        self._journal = journal
        self._on_told = on_told
        self.measures = measures or Measures()
        self._margin = min(LONGEST_MARGIN_SECONDS, lease / SHARE_OF_LEASE)
        self._poll_seconds = min(LONGEST_POLL_SECONDS, lease / SHARE_OF_LEASE)
        self._kind_of = kind_of
        self._slots = slots
        self._runs: dict[str, LiveRun] = {}
        self._inbox: list[tuple[str, int, commands.Command]] = []
        self._hinted = Hinted(slots)
        self._wake = asyncio.Event()
        self._look, self._is_polling, self._mail_due, self._draining = False, False, False, False
        self._has_session, self._has_lapsed = False, False
        self.opened = asyncio.Event()  # it has had a session: what is granted can be claimed
        self._roll = random.Random().random  # noqa: S311  jitter keeps no secret, and a system call a decision is dear
        self._effects = EffectRunner(journal.now, run_events_topic, self.post)
        self._late = LateResults()
        self.listener: BodyListener = Listener(self.post, self._late.add)

    def attach(self, bodies: Mapping[str, Bodies]) -> None:
        """The bodies by kind; they were made with this executor's `listener`."""
        self._effects.attach(bodies)

    # what comes in: every way in returns at once and wakes the loop

    def post(self, run_id: str, fence: int, command: commands.Command) -> None:
        self._inbox.append((run_id, fence, command))
        self._wake.set()

    def hint(self, grants: Iterable[Granted]) -> None:
        """Commands from Kafka: these runs were granted under these fences."""
        if self._hinted.add(grants):
            self._wake.set()

    def look_for_granted(self) -> None:
        self._look = True
        self._wake.set()

    def look_for_mail(self) -> None:
        self._mail_due = True
        self._wake.set()

    @property
    def live(self) -> int:
        return len(self._runs)

    def go_until(self) -> float:
        """Until when bodies may start attempts by themselves: short of the lease's end, by the monotonic clock."""
        return self._journal.lease_ends - self._margin

    # life

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`, then let what is in flight land for a while and give the rest back."""
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: self._wake.set())
        tasks = [stopping, asyncio.create_task(self._poll()), asyncio.create_task(self._watch_lease())]
        try:
            await self._open(stop)
            while not stop.is_set():
                await self._wake.wait()
                if not stop.is_set():  # a turn would begin what comes next
                    await self._turn(stop)
            if self._has_session:
                await self._drain()
        finally:
            for task in tasks:
                task.cancel()
            self._forget_all()
            await self._effects.aclose()
            await self._journal.aclose()

    async def _turn(self, stop: asyncio.Event) -> None:
        self._wake.clear()
        reason = None
        try:
            await self._flush()
        except (SessionOver, Unavailable, Broken) as exc:
            reason = str(exc)
            if isinstance(exc, SessionOver) and time.monotonic() < self._journal.lease_ends:
                self.measures.count("session_false_alarms_total")
        if reason is not None or self._has_lapsed:
            _log.error("session_lost", reason=reason or "not renewed in time", runs=len(self._runs))
            self.measures.count("session_lost_total")
            self._forget_all()
            await self._open(stop)

    async def _open(self, stop: asyncio.Event) -> None:
        """A new session; the runs of the one before go to whoever claims them."""
        self._has_session = self._has_lapsed = False
        while not stop.is_set():
            try:
                await self._journal.open()
            except AutomationError as exc:
                _log.warning("no_session", reason=str(exc))
                await asyncio.sleep(self._poll_seconds / 4)
            else:
                self._has_session = True
                self.opened.set()
                self.look_for_granted()
                return

    async def _poll(self) -> None:
        """Where commands and wake-ups were lost; the claim's commit renews the lease as well."""
        polls = 0
        while True:
            await asyncio.sleep(self._poll_seconds)
            polls += 1
            self._is_polling = not self._look
            self.look_for_granted()
            if polls % MAIL_POLLS == 0 and self._runs:
                self.look_for_mail()

    async def _watch_lease(self) -> None:
        """A session that cannot be renewed stops its bodies before somebody else may own their runs."""
        while True:
            await asyncio.sleep(max(self.go_until() - time.monotonic(), 0.1))
            if time.monotonic() >= self.go_until() and self._runs:
                _log.error("lease_not_renewed", runs=len(self._runs))
                self._has_lapsed = True  # what this session owns is forgotten here: it may not go on owning it
                self._forget_all()
                self._wake.set()

    def _forget_all(self) -> None:
        """Nothing of this session will be committed any more; bodies are dropped without a word."""
        self._late.add_unheard(self._inbox, self._runs)
        self._effects.drop_all(self._runs.values())
        self._runs.clear()
        self._inbox.clear()
        self._hinted.clear()

    async def _drain(self) -> None:
        """Let attempts in flight land and commit them, begin nothing, then give every run back."""
        self._draining = True
        until = time.monotonic() + DRAIN_SECONDS
        try:
            while (left := until - time.monotonic()) > 0 and any(run.is_unsure for run in self._runs.values()):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), left)
                self._wake.clear()
                await self._flush()
            if not self._has_lapsed:
                await self._journal.release([Release(run.run_id, run.is_unsure) for run in self._runs.values()])
                crash_points.reach("after_release_before_goodbye")
        except (SessionOver, AutomationError) as exc:
            _log.warning("not_given_back", reason=str(exc), runs=len(self._runs))
            self._has_lapsed = True
        if self._has_lapsed:
            await self._give_up()

    async def _give_up(self) -> None:
        """A stop that could not give its runs back is no crash of theirs."""
        try:
            await self._journal.give_up()
        except AutomationError as exc:
            _log.warning("not_given_up", reason=str(exc))

    # one commit

    async def _flush(self) -> None:
        """Decide what came, commit it, act on it, begin what was claimed."""
        batch, waiting = Batch(), list[Waiting]()
        if self._late:
            self.measures.count("late_attempts_total", await self._late.keep(self._journal))
        await self._collect_mail(batch)
        self._decide_all(batch, waiting)
        self._ask_for_runs(batch)
        if not is_worth_a_commit(batch) and time.monotonic() < self._journal.renew_at:
            self._act(waiting)
            return
        if batch.entries:
            crash_points.reach("after_step_before_append")
        claims = await self._commit(batch)
        self._count_poll(batch, claims)
        self._settle(batch)
        self._act(waiting)
        if claims:
            crash_points.reach("after_claim")
            await self._take(claims)
        if (batch.look_for_granted and len(claims) >= batch.room > 0) or 0 in batch.crashes.values():
            self.look_for_granted()

    def _count_poll(self, batch: Batch, claims: Sequence[Claim]) -> None:
        """Runs that nobody had told of, found by looking: wake-ups and commands are lost, or late."""
        if batch.look_for_granted:
            by_poll, self._is_polling = self._is_polling, False
            if by_poll and claims and not (batch.hinted or batch.ends or batch.rests):
                self.measures.count("wakeups_total", 1, "poll")

    def _settle(self, batch: Batch) -> None:
        """What the commit changed here."""
        self.measures.count("executor_commits_total")
        if batch.announcements:
            self._on_told()
        for entry in batch.entries:
            run = self._runs.get(entry.run_id)
            if run is not None:
                run.committed = entry.record.seq
        for end in batch.ends:
            self._forget(end.run_id)
            if end.error is not None and end.error.code == CRASH_LOOP:
                self.measures.count("run_crash_loops_total")
        for state, ended in Counter([end.state for end in batch.ends]).items():
            self.measures.count("runs_ended_total", ended, state)
        for rest in batch.rests:
            self._forget(rest.run_id)
        if batch.entries:
            crash_points.reach("after_append_before_next")

    async def _commit(self, batch: Batch) -> Sequence[Claim]:
        """All of it; where the log refuses it, all of it but the runs at fault, which are blocked instead."""
        try:
            return await self._journal.commit(batch)
        except SessionOver:
            self._late.add_refused(batch, self._runs)
            raise
        except Broken as exc:
            _log.error("batch_refused", reason=str(exc))
        claims, refused = await commit_apart(self._journal, batch)
        for run_id, fault in refused.items():
            _log.error("run_refused", run_id=run_id, reason=str(fault))
            leave_out(batch, run_id)
            run, blocking = self._runs.get(run_id), Batch()
            if run is not None:
                self._block(run, blocking)
                claims += await self._journal.commit(blocking)
                self._forget(run_id)
        return claims

    def _block(self, run: LiveRun, batch: Batch) -> None:
        """A run whose records went wrong behind the last committed one."""
        now = self._journal.now()
        record = defect_record(run, now)
        batch.entries.append(Entry(run.run_id, run.claim.generation, run.claim.project_id, record))
        self._effects.block(run, UNSTORABLE_BLOCK, now, batch)
        self.measures.count("run_defects_total")

    def _ask_for_runs(self, batch: Batch) -> None:
        """How many runs may be claimed, counting on the room that this batch's ends make."""
        leaving = len(batch.ends) + len(batch.rests)
        batch.room = 0 if self._draining else max(self._slots - len(self._runs) + leaving, 0)
        if batch.room == 0:
            return
        batch.hinted = self._hinted.take(batch.room)
        batch.look_for_granted, self._look = self._look, False

    def _decide_all(self, batch: Batch, waiting: list[Waiting]) -> None:
        inbox, self._inbox = self._inbox, []
        now, size = self._journal.now(), 0
        for place, (run_id, fence, command) in enumerate(inbox):
            run = self._runs.get(run_id)
            if run is None or run.claim.fence != fence or run.resting:
                continue
            size += self._decide(run, command, now, batch, waiting)
            if size > MOST_BATCH_BYTES:
                self._inbox = inbox[place + 1 :] + self._inbox
                self._wake.set()
                return

    def _decide(
        self, run: LiveRun, command: commands.Command, now: datetime, batch: Batch, waiting: list[Waiting]
    ) -> int:
        """One decision into the batch; answers about how many bytes it added."""
        before = run.state.crashes
        try:
            decision = decide(run.state, command, now, self._roll())
        except Exception:  # noqa: BLE001  a defect of ours costs this run, and no other; it is logged
            where = traceback.format_exc(limit=-4)
            _log.error("decision_failed", run_id=run.run_id, command=type(command).__name__, where=where)
            leave_out(batch, run.run_id)
            self._block(run, batch)
            return 0
        claim, size = run.claim, 0
        for record in decision.records:
            batch.entries.append(Entry(claim.run_id, claim.generation, claim.project_id, record))
            size += RECORD_BYTES + len(record.value or "")
        if run.state.crashes != before:
            batch.crashes[run.run_id] = run.state.crashes
        if decision.effects:
            self._effects.sort(run, decision, batch, waiting)
        return size

    def _act(self, waiting: list[Waiting]) -> None:
        go_until = self.go_until()
        for run, effect in waiting:
            if self._runs.get(run.claim.run_id) is not run or run.resting:
                continue
            if self._draining:
                self._effects.withhold(run, effect)
            else:
                self._effects.act(run, effect, go_until)

    def _forget(self, run_id: str) -> None:
        run = self._runs.pop(run_id, None)
        if run is not None:
            run.disarm()

    # claims and mail

    async def _take(self, claims: Sequence[Claim]) -> None:
        """Fold the logs of runs that were begun before, then begin or come back."""
        fresh = [claim for claim in claims if claim.run_id not in self._runs]
        begun = [claim.run_id for claim in fresh if claim.fence > 1]
        logs = await self._journal.histories(begun) if begun else {}
        for claim in fresh:
            await self._begin(claim, logs.get(claim.run_id, []))
        self.measures.count("runs_claimed_total", len(fresh))

    async def _begin(self, claim: Claim, log: Sequence[Record] | UnreadableLog) -> None:
        state, command = recalled(claim, log)
        try:
            kind = await self._kind_of(claim.definition_id)
        except Refused as exc:
            kind = "yaml"
            command = commands.Diverged(ErrorInfo(exc.code, "Refused", exc.message, retryable=False))
        run = self._runs[claim.run_id] = LiveRun(claim, kind, state, state.seq)
        self._hinted.note_claim(claim.run_id, claim.fence)
        self._effects.watch_deadline(run)
        self._mail_due = self._mail_due or claim.has_mail
        self.post(claim.run_id, claim.fence, command)

    async def _collect_mail(self, batch: Batch) -> None:
        """Mail goes before everything else that came: no run is at rest yet, so none of it is lost."""
        if not self._mail_due:
            return
        self._mail_due = False
        opened = []
        for mail in await self._journal.unread_mail():
            run = self._runs.get(mail.run_id)
            if run is not None:
                batch.mail.append(mail.mail_id)
                opened += [(run.run_id, run.claim.fence, command) for command in open_mail(mail)]
        self._inbox[:0] = opened
