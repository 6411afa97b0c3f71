"""What must hold whatever happens, by name; asked after every change, from what changed and nothing else.

Nothing here trusts an adapter: who owns a run, how many slots are taken and what was published is counted anew.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NoReturn

from processors.engine.moves import TERMINAL
from processors.ports.ingest import DeadRecord
from processors.ports.journal import Entry
from processors.ports.relay import OutboxRow
from processors.ports.streams import Record
from schemas.envelope import decode_envelope
from schemas.records import RUN_ITEM, Kind, Status
from schemas.run_events import decode_run_event
from tests.simulation.bodies import Witness
from tests.simulation.memory.tables import EndedRun, LaneId, LiveRun, QueueId, Session, Shard, Watcher
from tests.simulation.trace import Trace

ONE_OWNER = "one owner per fence"
LIVE_FENCE = "no result without a live fence"
LANE_ORDER = "lanes keep their order"
QUEUE_LIMIT = "no queue is above its limit"
EXACT_RUNS = "every accepted envelope has exactly its runs"
EXACT_OUTBOX = "the outbox announces exactly what was committed"
TERMINAL_STAYS = "terminal states change only by a named operator action"
ATTEMPT_NUMBERS = "attempts are numbered without holes"
ONE_SUCCESS = "a step succeeds at most once in the log"
EFFECTS_PRESENT = "the effects of committed steps are in the ledger"
COMMIT_FIRST = "nothing is acted on before its commit"
RIGHT_OUTCOME = "a run ends as its script says"
ALL_ENDS = "everything ends once the faults are over"
NEVER_BEGUN = "a run whose event is too old never begins, and is a dead letter"
NO_ROLE_DIES = "no role ends by itself"
_TAKING = frozenset({Status.SUCCEEDED, Status.FAILED, Status.LOST})


TOO_OLD = "E_EVENT_TOO_OLD"


class Violation(AssertionError):
    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


class Invariants(Watcher, Witness):
    """`limits` are the queues', `on_broken` hears of the first violation before it is raised."""

    def __init__(
        self, trace: Trace, limits: Mapping[QueueId, int], seq_header: str, on_broken: Callable[[Violation], None]
    ) -> None:
        self._trace = trace
        self._limits = limits
        self._seq_header = seq_header
        self._on_broken = on_broken
        self.sessions: dict[int, Session] = {}
        self.live: dict[str, LiveRun] = {}
        self.ended_runs: dict[str, EndedRun] = {}
        self.owner: dict[str, tuple[int, int]] = {}
        self.owned_fences: dict[tuple[str, int], int] = {}
        self.holding: dict[QueueId, dict[str, None]] = {}
        self.lanes: dict[LaneId, list[str]] = {}
        self.numbers: Counter[str] = Counter()
        self.attempts: Counter[tuple[str, str]] = Counter()
        self.successes: dict[tuple[str, str], int] = {}
        self.losses: Counter[str] = Counter()
        self.ledger: Counter[str] = Counter()
        self.rows: dict[tuple[int, int], OutboxRow] = {}
        self.committed_values: dict[tuple[str, bytes], None] = {}
        self.unannounced: dict[str, str] = {}
        self.cursor = (0, 0)
        self.published: Counter[tuple[str, bytes]] = Counter()
        self.values: dict[tuple[str, int, int], bytes] = {}
        self.rewinds = 0
        self.too_old: dict[str, None] = {}
        self.is_late: dict[str, bool] = {}

    def fail(self, invariant: str, message: str) -> NoReturn:
        violation = Violation(invariant, message)
        self._on_broken(violation)
        raise violation

    # sessions and claims

    def opened(self, session: Session) -> None:
        self._trace.note("session opened", session.session_id, session.owner)
        self.sessions[session.session_id] = session

    def closed(self, session: Session) -> None:
        self._trace.note("session closed", session.session_id, session.owner)

    def made(self, live: LiveRun) -> None:
        run = live.run
        self._trace.note("made", run.run_id, run.lane, live.lane_seq)
        if run.run_id in self.ended_runs:
            self.fail(TERMINAL_STAYS, f"{run.run_id} is made again after it ended")
        if run.run_id in self.live:
            self.fail(EXACT_RUNS, f"{run.run_id} is made twice")
        self.live[run.run_id] = live
        if run.ordered:
            self.lanes.setdefault(live.lane, []).append(run.run_id)

    def granted(self, live: LiveRun) -> None:
        run_id = live.run.run_id
        self._trace.note("granted", run_id, live.fence)
        if run_id in self.ended_runs:
            self.fail(TERMINAL_STAYS, f"{run_id} is granted after it ended")
        if live.owner_lost:
            self.losses[run_id] += 1
        self.owner.pop(run_id, None)
        is_over = live.deadline_at is not None and live.granted_at is not None and live.deadline_at <= live.granted_at
        self.holding.setdefault(live.queue, {}).setdefault(run_id, None)
        if is_over:  # it only ends, and needs no slot for that
            self._let_go(live)
        lane = self.lanes.get(live.lane, [])
        if live.run.ordered and lane[0] != run_id:
            self.fail(LANE_ORDER, f"{run_id} is granted while {lane[0]} stands before it in lane {live.run.lane}")

    def claimed(self, live: LiveRun, session: Session) -> None:
        run_id = live.run.run_id
        self._trace.note("claimed", run_id, live.fence, session.session_id)
        before = self.owned_fences.setdefault((run_id, live.fence), session.session_id)
        if before != session.session_id or run_id in self.owner:
            self.fail(ONE_OWNER, f"{run_id} under fence {live.fence} belongs to {before} and {session.session_id}")
        self._check_alive(session.session_id, f"claims {run_id}")
        self.owner[run_id] = (session.session_id, live.fence)
        if live.stale_at is not None and live.started_at is not None:
            self.is_late.setdefault(run_id, live.started_at > live.stale_at)

    def _check_alive(self, session: int, what: str) -> None:
        if not self.sessions[session].alive:
            self.fail(LIVE_FENCE, f"session {session}, which is over, {what}")

    def _check_owner(self, run_id: str, session: int, what: str) -> None:
        self._check_alive(session, f"{what} {run_id}")
        if run_id in self.ended_runs:
            self.fail(TERMINAL_STAYS, f"session {session} {what} {run_id}, which has ended")
        if self.owner.get(run_id, (0, 0))[0] != session:
            self.fail(LIVE_FENCE, f"session {session} {what} {run_id}, which belongs to {self.owner.get(run_id)}")

    # records

    def appended(self, entry: Entry, session: int) -> None:
        record, run_id = entry.record, entry.run_id
        self._trace.note("appended", run_id, record.seq, record.item, record.attempt, record.status.value)
        self._check_owner(run_id, session, "writes to")
        if record.seq != self.numbers[run_id] + 1:
            self.fail(ATTEMPT_NUMBERS, f"{run_id}: record {record.seq} after {self.numbers[run_id]}")
        self.numbers[run_id] = record.seq
        if record.kind is Kind.STEP and record.item != RUN_ITEM:
            self._check_attempt(run_id, record.item, record.attempt, record.status, record.key)

    def _check_attempt(self, run_id: str, item: str, attempt: int, status: Status, key: str | None) -> None:
        place = (run_id, item)
        if status in _TAKING:
            if attempt != self.attempts[place] + 1:
                self.fail(ATTEMPT_NUMBERS, f"{run_id} {item}: attempt {attempt} after {self.attempts[place]}")
            self.attempts[place] = attempt
        if status is Status.SUCCEEDED:
            if place in self.successes:
                self.fail(ONE_SUCCESS, f"{run_id} {item} succeeds in attempts {self.successes[place]} and {attempt}")
            self.successes[place] = attempt
            if not self.ledger[key or ""]:
                self.fail(EFFECTS_PRESENT, f"{run_id} {item}: no effect under {key}")

    def rested(self, live: LiveRun, session: int) -> None:
        run_id = live.run.run_id
        self._trace.note("rested", run_id, live.state)
        self._check_owner(run_id, session, "parks")
        self._let_go(live)
        if live.state == "blocked":
            self.unannounced[run_id] = live.state

    def ended(self, ended: EndedRun, session: int) -> None:
        live, run_id = ended.live, ended.live.run.run_id
        self._trace.note("ended", run_id, ended.state)
        self._check_owner(run_id, session, "ends")
        if ended.state not in TERMINAL:
            self.fail(TERMINAL_STAYS, f"{run_id} ends as {ended.state}")
        self._check_age(ended)
        self._let_go(live)
        del self.live[run_id]
        self.ended_runs[run_id] = ended
        self.unannounced[run_id] = ended.state
        if live.run.ordered:
            lane = self.lanes[live.lane]
            if lane[0] != run_id:
                self.fail(LANE_ORDER, f"{run_id} ends while {lane[0]} stands before it")
            del lane[0]

    def _check_age(self, ended: EndedRun) -> None:
        """Ended for its age is who was claimed too late for the first time, and nobody else, with a dead letter."""
        run_id, end = ended.live.run.run_id, ended.end
        code = None if end.error is None else end.error.code
        is_late = self.is_late.get(run_id, False)
        if is_late != (code == TOO_OLD) and ended.state != "cancelled":
            self.fail(NEVER_BEGUN, f"{run_id} ends as {ended.state} {code}; claimed too late: {is_late}")
        if code == TOO_OLD and (end.dead_letter_id is None or end.reason != "event_too_old"):
            self.fail(NEVER_BEGUN, f"{run_id} ends for its age as dead letter {end.dead_letter_id} {end.reason}")

    def _let_go(self, live: LiveRun) -> None:
        self.owner.pop(live.run.run_id, None)
        self.holding.get(live.queue, {}).pop(live.run.run_id, None)

    # the outbox

    def announced(self, row: OutboxRow) -> None:
        self._trace.note("announced", row.topic, row.xid, row.id)
        place = (row.xid, row.id)
        if place <= self.cursor:
            self.fail(EXACT_OUTBOX, f"row {place} is committed behind the relay's cursor {self.cursor}: it is skipped")
        self.rows[place] = row
        self.committed_values[row.topic, row.value] = None
        if row.topic.endswith("run-events.v1"):
            event = decode_run_event(row.value)
            if self.unannounced.pop(event.run_id, None) != event.state:
                self.fail(EXACT_OUTBOX, f"{event.run_id} is announced as {event.state}, which was not committed")

    def committed(self) -> None:
        if self.unannounced:
            self.fail(EXACT_OUTBOX, f"committed without an announcement: {self.unannounced}")
        for queue, runs in self.holding.items():
            if len(runs) > self._limits[queue]:
                self.fail(QUEUE_LIMIT, f"{queue[1]} holds {list(runs)}, its limit is {self._limits[queue]}")

    def cursor_moved(self, shard: Shard) -> None:
        self._trace.note("cursor", shard.xid, shard.id)
        before, self.cursor = self.cursor, (shard.xid, shard.id)
        for place, row in self.rows.items():
            if before < place <= self.cursor and not self.published[row.topic, row.value]:
                self.fail(EXACT_OUTBOX, f"the relay's cursor passes row {place}, which was never published")

    def went_back(self, shard: Shard) -> None:
        """Rows go out again, and perhaps under other numbers."""
        self._trace.note("went back", shard.xid, shard.id)
        self.cursor, self.rewinds = (shard.xid, shard.id), self.rewinds + 1

    def record_written(self, topic: str, topic_id: str, partition: int, record: Record) -> None:
        self._trace.note("record", topic, topic_id, partition, record.offset)
        number = next((int(value or b"0") for name, value in record.headers if name == self._seq_header), None)
        if number is None:
            return
        value = record.value or b""
        self.published[topic, value] += 1
        if self.rewinds == 0 and self.values.setdefault((topic, partition, number), value) != value:
            self.fail(EXACT_OUTBOX, f"two rows bear the number {number} of {topic} {partition}")
        if (topic, value) not in self.committed_values:
            self.fail(EXACT_OUTBOX, f"a record of {topic} was never committed")

    def buried(self, dead: DeadRecord) -> None:
        self._trace.note("buried", dead.dead_letter_id, dead.error_code)
        if dead.error_code != TOO_OLD or dead.envelope is None:
            return
        event_id = decode_envelope(dead.envelope.encode()).id
        if event_id in self.too_old:
            self.fail(EXACT_RUNS, f"{event_id} is refused for its age twice")
        self.too_old[event_id] = None

    # bodies

    def began(self, run_id: str, fence: int, item: str, attempt: int, after: int) -> None:
        self._trace.note("began", run_id, fence, item, attempt)
        if self.is_late.get(run_id):
            self.fail(NEVER_BEGUN, f"{run_id} begins {item}, and was claimed when its event was too old")
        self._check_committed(run_id, after, f"{item} begins")

    def delivered(self, run_id: str, fence: int, seq: int) -> None:
        self._check_committed(run_id, seq, "its body hears of a record")

    def _check_committed(self, run_id: str, seq: int, what: str) -> None:
        if seq > self.numbers[run_id]:
            self.fail(COMMIT_FIRST, f"{run_id}: {what} after record {seq}; {self.numbers[run_id]} are committed")

    def effected(self, key: str) -> None:
        self._trace.note("effect", key)
        self.ledger[key] += 1
