"""Ingest: polls of the events topic become runs, counters and dead letters, a part of a poll in one commit.

Every record has exactly one of three fates: it is accepted (its triggers make runs, or none matches), it is a
repetition, or it becomes a dead letter with its raw bytes. Offsets move in the transaction that decides it.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
import structlog

from processors.ports import crash_points
from processors.ports.catalog import CatalogSnapshot
from processors.ports.hints import Hints
from processors.ports.ingest import Arrival, DeadRecord, Followed, Harvest, IngestLog, Reached
from processors.ports.measures import Measures
from processors.ports.relay import BATCH
from processors.ports.runs import NewRun
from processors.ports.schemas import Schemas
from processors.ports.storage import Storage
from processors.ports.streams import Record
from processors.runtime.current_catalog import CurrentCatalog
from processors.runtime.matching import Miss, is_wanted, kept_miss, match
from schemas.confluent import WriterSchema, schema_number
from schemas.envelope import Envelope, data_hash, envelope_text, reference_of
from schemas.errors import AutomationError, Refused, Unavailable
from schemas.framing import Writers, decode_records
from schemas.ids import MAX_MILLIS, computed_dead_letter_id, event_millis
from schemas.redacted_text import without_secrets
from schemas.stored_bodies import check_size

SEQ_HEADER = "a44-seq"
TOO_OLD = "E_EVENT_TOO_OLD"
MOST_SEQ_DIGITS = 18
MOST_RECORDS = 1_000
MOST_BYTES = 8_000_000
RECORDS_A_TURN = 100
LONGEST_BACKLOG_MILLIS = 20 * 86_400_000
_log = structlog.get_logger("ingest")


class Ingest:
    """The handler of the events topic's consumer."""

    def __init__(
        self,
        log: IngestLog,
        catalog: CurrentCatalog,
        hints: Hints,
        measures: Measures | None = None,
        storage: Storage | None = None,
        schemas: Schemas | None = None,
    ) -> None:
        self._log = log
        self._catalog = catalog
        self._hints = hints
        self.measures = measures or Measures()
        self._storage = storage
        self._schemas = schemas

    async def __call__(self, records: Sequence[Record]) -> None:
        """Durable when it returns. Raises `Unavailable`: the same records come again."""
        snapshot = await self._catalog.get()
        by_topic: dict[str, list[Record]] = {}
        for record in records:
            by_topic.setdefault(record.topic, []).append(record)
        for topic, polled in by_topic.items():
            await self._take_poll(snapshot, topic, polled)

    async def _take_poll(self, snapshot: CatalogSnapshot, topic: str, polled: Sequence[Record]) -> None:
        """Part by part, in order: one is read while the one before is written."""
        followed = dict(self._log.followed(topic))
        writing: asyncio.Task[None] | None = None
        try:
            for part in _parts(polled):
                harvest = Harvest(topic)
                await self._read(snapshot, await self._follow(part, followed, harvest), harvest)
                if writing is not None:
                    await writing
                writing = asyncio.create_task(self._write(harvest))
            if writing is not None:
                await writing
        finally:
            if writing is not None and not writing.done():
                writing.cancel()
                await asyncio.wait([writing])

    async def _read(
        self, snapshot: CatalogSnapshot, numbered: Sequence[tuple[Record, int | None]], harvest: Harvest
    ) -> None:
        """Decide what becomes of each record; now and then others have a turn, who write the part before."""
        now = self._log.now()
        now_millis = _millis(now)
        for at in range(0, len(numbered), RECORDS_A_TURN):
            await asyncio.sleep(0)
            some = numbered[at : at + RECORDS_A_TURN]
            told = decode_records([one for one, _ in some], await self._writers([one for one, _ in some]))
            for (record, number), envelope in zip(some, told, strict=True):
                if isinstance(envelope, Refused):
                    harvest.dead.append(_dead(record, None, "undecodable", envelope))
                    continue
                accepted = None if number is None else _accepted_at(envelope, now_millis)
                millis = now_millis if accepted is None else _millis(accepted)
                found = await self._match(snapshot, envelope, millis, now)
                self._take(harvest, record, envelope, accepted, found)
        _fold_repeated_runs(harvest)

    async def _writers(self, records: Sequence[Record]) -> Writers:
        """The schemas that records say they were written by. Raises `Unavailable`."""
        writers: dict[int, WriterSchema | Refused] = {}
        if self._schemas is not None:
            for number in {schema_number(record.value) for record in records}:
                if number is None:
                    continue
                try:
                    writers[number] = await self._schemas.writer(number)
                except Refused as refused:
                    writers[number] = refused
        return writers

    async def _match(
        self, snapshot: CatalogSnapshot, envelope: Envelope, millis: int, now: datetime
    ) -> Sequence[NewRun | Refused | Miss]:
        """What the event makes. Data that lies in storage is read where a trigger asks for the event: its filter may
        look at it, and a run of what cannot be read any more is not begun. Raises `Unavailable`.
        """
        try:
            check_size(envelope.data)
            if envelope.data_ref is None or not is_wanted(snapshot, envelope):
                return match(snapshot, envelope, millis=millis, now=now)
            return match(snapshot, envelope, millis=millis, now=now, stored=await self._stored(envelope))
        except Refused as refused:
            return [refused]

    async def _stored(self, envelope: Envelope) -> bytes:
        reference = reference_of(envelope)
        if self._storage is None or reference is None:
            raise Refused("E_STORED_BODY_MISSING", "the data lies in storage, and no storage_url is set for ingest")
        return await self._storage.get(reference)

    async def _write(self, harvest: Harvest) -> None:
        crash_points.reach("after_poll_before_commit")
        try:
            grants = await self._log.commit(harvest)
        except AutomationError as exc:
            raise self._held_up(harvest, exc) from exc
        crash_points.reach("after_commit_before_ack")
        self._count(harvest)
        self._hints.granted(grants)

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

    async def _follow(
        self, polled: Sequence[Record], followed: dict[int, Followed], harvest: Harvest
    ) -> list[tuple[Record, int | None]]:
        """The records to be decided, with the relay's numbers, and how far they lead.

        Numbers only tell of gaps; what comes twice is known by its event id. Behind a gap nothing is decided: the
        relay goes back, and everything comes again in order. A gap is asked for where the numbers jump, so once.
        """
        numbered: list[tuple[Record, int | None]] = []
        given: Mapping[int, int] | None = None
        for record in polled:
            at, number = followed.get(record.partition, Followed()), _number(record)
            if number is not None and number > at.seq + 1:
                given = await self._log.given(harvest.topic) if given is None else given
                if number > given.get(record.partition, 0) + BATCH:
                    number = None  # never given: whoever may write to the topic may also write a number
            if number is None or number <= at.seq + 1:
                numbered.append((record, number))
                at = at if number is None else Followed(max(at.seq, number), number)
            else:
                if number != at.seen + 1:
                    self._miss(record, at.seq + 1, number, harvest)
                at = Followed(at.seq, number)
            followed[record.partition] = at
            harvest.reached[record.partition] = Reached(record.offset + 1, at)
        return numbered

    def _miss(self, record: Record, expected: int, seen: int, harvest: Harvest) -> None:
        harvest.missing[record.partition] = expected
        _log.error("relay_gap", partition=record.partition, offset=record.offset, expected=expected, seen=seen)

    def _take(
        self,
        harvest: Harvest,
        record: Record,
        envelope: Envelope,
        accepted: datetime | None,
        found: Sequence[NewRun | Refused | Miss],
    ) -> None:
        harvest.arrivals.append(
            Arrival(
                event_id=envelope.id,
                project_id=envelope.project_id,
                idempotency_key=envelope.idempotency_key,
                body_hash=data_hash(envelope),
                accepted_at=accepted,
                partition=record.partition,
                offset=record.offset,
                raw=record.value or b"",
                dead_letter_id=_letter(record, "conflict") if accepted is None else None,
            )
        )
        for place, one in enumerate(found):
            if isinstance(one, Refused):
                reason = "event_too_old" if one.code == TOO_OLD else "permanent_error"
                harvest.dead.append(_refused_by_trigger(record, envelope, reason, one, place))
            elif isinstance(one, NewRun):
                harvest.runs.append(one)
        if not found:
            self.measures.count("events_unmatched_total")
        missed = [kept_miss(one.trigger, envelope) for one in found if isinstance(one, Miss)]
        harvest.filtered += len(missed)
        harvest.misses += [one for one in missed if one is not None]

    def _count(self, harvest: Harvest) -> None:
        self.measures.count("events_taken_total", len(harvest.arrivals))
        self.measures.count("event_runs_total", len(harvest.runs))
        self.measures.count("events_filtered_total", harvest.filtered)
        if harvest.missing:
            self.measures.count("relay_gaps_total", len(harvest.missing))
        for dead in harvest.dead:
            self.measures.count("records_refused_total", 1, dead.error_code)
            _log.warning("dead_letter", id=dead.dead_letter_id, code=dead.error_code, project_id=dead.project_id)


def _fold_repeated_runs(harvest: Harvest) -> None:
    """A record that stands twice in a poll makes its runs once. Keys that repeat are the log's to decide: which
    event a key belongs to is not known here.
    """
    harvest.runs = list({run.run_id: run for run in reversed(harvest.runs)}.values())[::-1]


def _number(record: Record) -> int | None:
    for name, value in record.headers:
        if name == SEQ_HEADER and value and value.isdigit() and len(value) <= MOST_SEQ_DIGITS:
            return int(value)
    return None


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


def _accepted_at(envelope: Envelope, now_millis: int) -> datetime | None:
    """What came through a door was accepted when its event id was made; a direct record is accepted now.

    A time that no backlog explains was made up by somebody who writes the relay's header: it is not believed.
    """
    millis = event_millis(envelope.id)
    if millis is None or not -LONGEST_BACKLOG_MILLIS < millis - now_millis < LONGEST_BACKLOG_MILLIS:
        return None
    return datetime.fromtimestamp(millis / 1000, UTC)


def _millis(now: datetime) -> int:
    return int(now.timestamp() * 1000)


def _letter(record: Record, salt: str) -> str:
    """A dead letter's id; computed from the record's content and place, so that a second reading adds none. Its
    time is the producer's to choose, within what an id can tell.
    """
    seed = f"{record.topic}\0{record.partition}\0{record.offset}\0{salt}\0".encode() + (record.value or b"")
    return computed_dead_letter_id(min(max(record.timestamp_ms, 0), MAX_MILLIS), seed)


def _refused_by_trigger(record: Record, envelope: Envelope, reason: str, refused: Refused, place: int) -> DeadRecord:
    """With what a redrive needs, where the refusal is one trigger's."""
    dead = _dead(record, envelope.project_id, reason, refused, place)
    workflow, trigger = refused.details.get("workflow_id"), refused.details.get("trigger_id")
    if not (isinstance(workflow, str) and isinstance(trigger, str)):
        return dead
    told = {"workflow_id": workflow, "trigger_id": trigger, "envelope": envelope_text(envelope)}
    return msgspec.structs.replace(dead, **told)


def _dead(record: Record, project_id: str | None, reason: str, refused: Refused, place: int = 0) -> DeadRecord:
    return DeadRecord(
        dead_letter_id=_letter(record, f"{refused.code}{place}"),
        project_id=project_id,
        reason=reason,
        error_code=refused.code,
        summary=without_secrets(refused.message)[:500],
        raw=record.value,
        partition=record.partition,
        offset=record.offset,
    )
