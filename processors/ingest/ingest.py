"""Ingest: polls of the events topic become runs, counters and dead letters, a part of a poll in one commit.

Every record has exactly one of three fates: it is accepted (its triggers make runs, or none matches), it is a
repetition, or it becomes a dead letter with its raw bytes. Offsets move in the transaction that decides it, or that
puts it off to a retry topic, from where it comes back as what it was.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
import structlog

from processors.ingest.direct_records import tell_direct
from processors.ingest.postponing import MOST_TRIES, Ladder, Source, may_wait_elsewhere, source_of
from processors.ingest.reading import Read, Reader
from processors.ports import crash_points
from processors.ports.catalog import CatalogSnapshot
from processors.ports.hints import Hints
from processors.ports.ingest import Arrival, DeadRecord, Followed, Harvest, IngestLog, Reached, event_of
from processors.ports.measures import Measures
from processors.ports.runs import NewRun
from processors.ports.schemas import Schemas
from processors.ports.storage import Storage
from processors.ports.streams import Later, Record
from processors.runtime.current_catalog import CurrentCatalog
from processors.runtime.matching import Miss, kept_miss
from processors.runtime.unread import refused_unread
from schemas.envelope import Envelope, data_hash, envelope_text
from schemas.errors import AutomationError, Refused, Unavailable
from schemas.ids import MAX_MILLIS, computed_dead_letter_id
from schemas.kept_records import NOTHING_KEPT, kept
from schemas.redacted_text import without_secrets
from schemas.relay_numbers import number_of

EXHAUSTED = "max_attempts_exceeded"
REASONS = {"E_EVENT_TOO_OLD": "event_too_old", "E_STORAGE_UNAVAILABLE": EXHAUSTED}
MOST_RECORDS = 1_000
MOST_BYTES = 8_000_000
HOLD_SECONDS = 2.0
_NOTHING_FOLLOWED = Followed()
_log = structlog.get_logger("ingest")


class _Step(msgspec.Struct, frozen=True, gc=False):
    """A record in its turn, and how far its partition is with it. `missing` is the number at which the relay has to go
    on again; a record behind a gap will come again itself.
    """

    record: Record
    is_relayed: bool
    is_behind_gap: bool
    followed: Followed
    missing: int | None


class Ingest:
    """The handler of the events topic's consumer, and of what is due on retry topics. `delays` has those, in seconds;
    where there are none, everything waits in its partition.
    """

    def __init__(
        self,
        log: IngestLog,
        catalog: CurrentCatalog,
        hints: Hints,
        measures: Measures | None = None,
        storage: Storage | None = None,
        schemas: Schemas | None = None,
        delays: Mapping[str, float] | None = None,
    ) -> None:
        self._log = log
        self._catalog = catalog
        self._hints = hints
        self.measures = measures or Measures()
        self._storage = storage
        self._schemas = schemas
        self._ladder = Ladder(delays or {})

    def now(self) -> datetime:
        """The database's clock."""
        return self._log.now()

    @property
    def longest_delay(self) -> float:
        return self._ladder.longest

    async def __call__(self, records: Sequence[Record]) -> Mapping[int, Later]:
        """Durable when it returns, but for partitions that wait for a record that cannot be read now.

        Raises `Unavailable`: the same records come again.
        """
        snapshot = await self._catalog.get()
        by_topic: dict[str, list[Record]] = {}
        for record in records:
            by_topic.setdefault(record.topic, []).append(record)
        later: dict[int, Later] = {}
        for topic, polled in by_topic.items():
            later |= await self._take_poll(snapshot, topic, polled)
        return later

    async def _take_poll(self, snapshot: CatalogSnapshot, topic: str, polled: Sequence[Record]) -> dict[int, Later]:
        """Part by part, in order: one is read while the one before is written."""
        followed = dict(self._log.followed(topic))
        reader = Reader(snapshot, self._log.now(), self._storage, self._schemas)
        held: dict[int, Later] = {}
        writing: asyncio.Task[None] | None = None
        try:
            for part in _parts(polled):
                going_on = [record for record in part if record.partition not in held]
                for harvest in await self._read(reader, topic, self._follow(going_on, followed), held):
                    if writing is not None:
                        await writing
                    writing = asyncio.create_task(self._write(harvest)) if harvest.reached else None
            if writing is not None:
                await writing
        finally:
            if writing is not None and not writing.done():
                writing.cancel()
                await asyncio.wait([writing])
        return held

    async def _read(
        self, reader: Reader, topic: str, steps: Sequence[_Step], held: dict[int, Later]
    ) -> Sequence[Harvest]:
        """Decide what becomes of each record. Behind one that cannot be read now, its partition stands still. One
        harvest, and another behind each record that has to know what became of one before it.
        """
        sources = self._sources(topic, [step for step in steps if not step.is_behind_gap])
        told = iter(zip(sources, await reader.read(sources), strict=True))
        harvest, last = Harvest(topic), dict[int, _Step]()
        harvests = [harvest]
        for step in steps:
            found = None if step.is_behind_gap else next(told)
            partition = step.record.partition
            if partition in held:
                continue
            if found is not None and _depends(harvest, found[1]):
                _close(harvest, last)
                harvest, last = Harvest(topic), {}
                harvests.append(harvest)
            if found is not None and not self._decide(harvest, reader, *found):
                held[partition] = Later(step.record.offset, HOLD_SECONDS)
                continue
            last[partition] = step
            if step.missing is not None:
                harvest.missing[partition] = step.missing
                self._tell_gap(step)
        _close(harvest, last)
        return harvests

    def _sources(self, topic: str, steps: Sequence[_Step]) -> list[Source]:
        if self._ladder.has(topic):
            return [source_of(step.record, is_relayed=step.is_relayed) for step in steps]
        return [Source(step.record, step.is_relayed) for step in steps]

    def _decide(self, harvest: Harvest, reader: Reader, source: Source, read: Read) -> bool:
        """Whether anything may be decided on the record: that it waits elsewhere, too."""
        if read.away is None:
            self._take(harvest, source.record, read)
            return True
        if source.tries >= MOST_TRIES:
            self._give_up(harvest, reader.snapshot, source, read, read.away)
            return True
        envelope = read.envelope if isinstance(read.envelope, Envelope) else None
        letter = None
        if may_wait_elsewhere(reader.snapshot, source, envelope):
            letter = self._ladder.letter(source, read.away.code, reader.now)
        if letter is None:
            self._tell_hold(source.record, read.away)
            return False
        harvest.postponed.append(letter)
        return True

    def _give_up(
        self, harvest: Harvest, snapshot: CatalogSnapshot, source: Source, read: Read, away: Unavailable
    ) -> None:
        refused = Refused(away.code, f"{away.message}, after {source.tries} tries")
        if isinstance(read.envelope, Envelope):
            found = refused_unread(snapshot, read.envelope, refused, is_accepted=read.accepted is not None)
            self._take(harvest, source.record, msgspec.structs.replace(read, found=found, away=None))
        else:
            harvest.dead.append(_dead(source.record, None, EXHAUSTED, refused))

    def _tell_gap(self, step: _Step) -> None:
        place = {"partition": step.record.partition, "offset": step.record.offset}
        _log.error("relay_gap", **place, expected=step.missing, seen=step.followed.seen)

    def _tell_hold(self, record: Record, away: Unavailable) -> None:
        place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        _log.warning("partition_waits", code=away.code, reason=away.message, **place)
        self.measures.count("partition_waits_total", 1, away.code)

    async def _write(self, harvest: Harvest) -> None:
        crash_points.reach("after_poll_before_commit")
        try:
            committed = await self._log.commit(harvest)
        except AutomationError as exc:
            raise self._held_up(harvest, exc) from exc
        crash_points.reach("after_commit_before_ack")
        self._count(harvest, committed.buried)
        tell_direct(harvest, committed.known, self.measures)
        self._hints.granted(committed.grants)

    def _held_up(self, harvest: Harvest, failure: AutomationError) -> AutomationError:
        """Nothing passes a dead letter that cannot be written, whatever the reason: its records wait, and somebody is
        told.
        """
        if not harvest.dead:
            return failure
        self.measures.count("dead_letter_write_failures_total", len(harvest.dead))
        partitions = sorted({dead.partition for dead in harvest.dead})
        _log.error("dead_letters_not_written", topic=harvest.topic, partitions=partitions, reason=str(failure))
        return Unavailable("E_UNAVAILABLE", f"dead letters of {harvest.topic} cannot be written: {failure}")

    def _follow(self, polled: Sequence[Record], followed: dict[int, Followed]) -> list[_Step]:
        """How far each record leads, by the relay's numbers.

        Numbers only tell of gaps; what comes twice is known by its event id. Behind a gap nothing is decided: the
        relay goes back, and everything comes again in order. A gap is asked for where the numbers jump, so once.
        """
        steps, key = list[_Step](), self._log.seal_key()
        for record in polled:
            at = followed.get(record.partition, _NOTHING_FOLLOWED)
            number = number_of(key, record.topic, record.partition, record.headers, record.value)
            missing: int | None = None
            is_behind_gap = number is not None and number > at.seq + 1
            if number is not None:
                missing = at.seq + 1 if is_behind_gap and number != at.seen + 1 else None
                at = Followed(at.seq if is_behind_gap else max(at.seq, number), number)
            followed[record.partition] = at
            steps.append(_Step(record, number is not None, is_behind_gap, at, missing))
        return steps

    def _take(self, harvest: Harvest, record: Record, read: Read) -> None:
        envelope, accepted = read.envelope, read.accepted
        if not isinstance(envelope, Envelope):
            if envelope is not None:
                harvest.dead.append(_dead(record, None, "undecodable", envelope))
            return
        if read.unfit is not None:
            harvest.dead.append(_dead(record, envelope.project_id, "permanent_error", read.unfit))
            return
        missed = [kept_miss(one.trigger, envelope) for one in read.found if isinstance(one, Miss)]
        arrival = Arrival(
            event_id=envelope.id,
            project_id=envelope.project_id,
            idempotency_key=envelope.idempotency_key,
            body_hash=data_hash(envelope),
            accepted_at=accepted,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            raw=record.value or b"",
            dead_letter_id=_letter(record, "conflict") if accepted is None else None,
            kept=kept(record) if accepted is None else NOTHING_KEPT,
            is_filtered=0 < len(missed) == len(read.found),
        )
        harvest.arrivals.append(arrival)
        is_first = _is_first(harvest, arrival)
        for place, one in enumerate(read.found if is_first else ()):
            if isinstance(one, Refused):
                reason = REASONS.get(one.code, "permanent_error")
                harvest.dead.append(_refused_by_trigger(record, envelope, reason, one, place))
            elif isinstance(one, NewRun):
                harvest.runs.append(one)
        if not read.found:
            self.measures.count("events_unmatched_total")
        harvest.filtered += len(missed)
        harvest.misses += [one for one in missed if one is not None]

    def _count(self, harvest: Harvest, buried: Collection[str]) -> None:
        self.measures.count("events_taken_total", len(harvest.arrivals))
        self.measures.count("event_runs_total", len(harvest.runs))
        self.measures.count("events_filtered_total", harvest.filtered)
        for letter in harvest.postponed:
            self.measures.count("records_postponed_total", 1, letter.code)
        if harvest.missing:
            self.measures.count("relay_gaps_total", len(harvest.missing))
        for dead in (one for one in harvest.dead if one.dead_letter_id in buried):
            self.measures.count("records_refused_total", 1, dead.error_code)
            _log.warning("dead_letter", id=dead.dead_letter_id, code=dead.error_code, project_id=dead.project_id)


def _depends(harvest: Harvest, read: Read) -> bool:
    """Whether it says under another key, or with other data, what a record before it has said of its event: which of
    them is its event's depends on whose those keys are, and that is known once the one before is written.
    """
    envelope = read.envelope
    if read.accepted is not None or not isinstance(envelope, Envelope):
        return False
    first = harvest.events.get((envelope.project_id, envelope.id))
    return (
        first is not None
        and first.accepted_at is None
        and (first.idempotency_key, first.body_hash) != (envelope.idempotency_key, data_hash(envelope))
    )


def _is_first(harvest: Harvest, arrival: Arrival) -> bool:
    """Whether it decides what its event makes: the first that came through a door does, else the first of all."""
    event = event_of(arrival)
    first = harvest.events.setdefault(event, arrival)
    if first is arrival:
        return True
    if first.accepted_at is not None or arrival.accepted_at is None:
        return False
    harvest.events[event] = arrival
    harvest.runs = [run for run in harvest.runs if event_of(run) != event]
    harvest.dead = [dead for dead in harvest.dead if (dead.project_id, dead.event_id) != event]
    return True


def _close(harvest: Harvest, last: Mapping[int, _Step]) -> None:
    """How far it reaches. A record that stands twice in it is put off once."""
    harvest.reached = {partition: Reached(one.record.offset + 1, one.followed) for partition, one in last.items()}
    harvest.postponed = list({letter.letter_id: letter for letter in harvest.postponed}.values())


def _parts(polled: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """A poll in parts of about the same size, each of which is worth a commit and no burden to one."""
    begin = weight = 0
    for at, record in enumerate(polled):
        size = len(record.value or b"")
        if at > begin and (at - begin >= MOST_RECORDS or weight + size > MOST_BYTES):
            yield polled[begin:at]
            begin, weight = at, 0
        weight += size
    yield polled[begin:]


def _letter(record: Record, salt: str) -> str:
    """A dead letter's id; computed from the record's content and place, so that a second reading adds none. Its
    time is the producer's to choose, within what an id can tell.
    """
    seed = f"{record.topic}\0{record.partition}\0{record.offset}\0{salt}\0".encode() + (record.value or b"")
    return computed_dead_letter_id(min(max(record.timestamp_ms, 0), MAX_MILLIS), seed)


def _refused_by_trigger(record: Record, envelope: Envelope, reason: str, refused: Refused, place: int) -> DeadRecord:
    """With what a redrive needs, where the refusal is one trigger's."""
    dead = _dead(record, envelope.project_id, reason, refused, place)
    dead = msgspec.structs.replace(dead, event_id=envelope.id)
    workflow, trigger = refused.details.get("workflow_id"), refused.details.get("trigger_id")
    if not (isinstance(workflow, str) and isinstance(trigger, str)):
        return dead
    told = {"workflow_id": workflow, "trigger_id": trigger, "envelope": envelope_text(envelope)}
    return msgspec.structs.replace(dead, **told, data_ref=envelope.data_ref)


def _dead(record: Record, project_id: str | None, reason: str, refused: Refused, place: int = 0) -> DeadRecord:
    return DeadRecord(
        dead_letter_id=_letter(record, f"{refused.code}{place}"),
        project_id=project_id,
        reason=reason,
        error_code=refused.code,
        summary=without_secrets(refused.message)[:500],
        raw=record.value,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        kept=kept(record),
    )
