"""What records say, and what their events make. Schemas and stored bodies are fetched for it, several at a time.

What cannot be reached now concerns the records that need it and no others. Bodies are let go of as soon as they are
read: no more of them than are fetched at a time are held.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import msgspec

from processors.ingest.postponing import Source
from processors.ports.catalog import CatalogSnapshot
from processors.ports.runs import NewRun
from processors.ports.schemas import Schemas
from processors.ports.storage import Storage
from processors.ports.streams import Record
from processors.runtime.event_schemas import has_schema, unfitness
from processors.runtime.matching import WEBHOOK, Miss, is_wanted, match
from processors.runtime.unread import refused_unread
from schemas.confluent import WriterSchema, schema_number
from schemas.envelope import Envelope, reference_of
from schemas.errors import Refused, Unavailable
from schemas.framing import decode_record
from schemas.ids import event_millis
from schemas.stored_bodies import check_size

AT_ONCE = 8
RECORDS_A_TURN = 100
LONGEST_BACKLOG_MILLIS = 20 * 86_400_000

Answer = TypeVar("Answer")
Found = NewRun | Refused | Miss


class Read(msgspec.Struct, frozen=True, gc=False):
    """What a record comes to. `envelope` is a refusal where it is no event, and None where nobody can tell now; with
    `away`, nothing may be decided. `accepted` is None for a record produced straight to Kafka. `unfit` says why the
    event is refused as a door would refuse it.
    """

    envelope: Envelope | Refused | None
    accepted: datetime | None = None
    found: Sequence[Found] = ()
    away: Unavailable | None = None
    unfit: Refused | None = None


class _Reach:
    """The way to something that may be away: so many questions at a time, and none any more once so many failed."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(AT_ONCE)
        self._failed = 0
        self._failure = Unavailable("E_UNAVAILABLE", "nothing was asked")

    async def __call__(self, ask: Callable[[], Awaitable[Answer]]) -> Answer | Unavailable:
        async with self._room:
            if self._failed >= AT_ONCE:
                return self._failure
            try:
                return await ask()
            except Unavailable as exc:
                self._failed += 1
                self._failure = exc
                return exc


class Reader:
    """Reads the records of one poll, as of one moment of the catalog."""

    def __init__(
        self, snapshot: CatalogSnapshot, now: datetime, storage: Storage | None, schemas: Schemas | None
    ) -> None:
        self.snapshot = snapshot
        self.now = now
        self._now_millis = _millis(now)
        self._storage = storage
        self._schemas = schemas
        self._reach_storage, self._reach_schemas = _Reach(), _Reach()
        self._writers: dict[int, WriterSchema | Refused | Unavailable] = {}

    async def read(self, sources: Sequence[Source]) -> list[Read]:
        """In the order of the sources; now and then others have a turn, who write what was read before."""
        await self._learn_writers(sources)
        answer: list[Read] = []
        stored: list[tuple[int, Envelope, datetime | None]] = []
        for at, source in enumerate(sources):
            if at % RECORDS_A_TURN == 0:
                await asyncio.sleep(0)
            envelope = source.fault or self._envelope(source.record)
            if not isinstance(envelope, Envelope):
                answer.append(Read(None, away=envelope) if isinstance(envelope, Unavailable) else Read(envelope))
                continue
            accepted = _accepted_at(envelope, self._now_millis) if source.is_relayed else None
            unsigned = self._unsigned(envelope) if accepted is None else None
            if unsigned is not None:
                answer.append(Read(envelope, unfit=unsigned))
                continue
            if envelope.data_ref is None or not self._needs_body(envelope, accepted):
                answer.append(self._matched(envelope, accepted, None))
            else:
                stored.append((at, envelope, accepted))
                answer.append(Read(envelope, accepted))
        fetched = await asyncio.gather(*(self._with_body(envelope, accepted) for _, envelope, accepted in stored))
        for (at, *_), one in zip(stored, fetched, strict=True):
            answer[at] = one
        return answer

    async def _learn_writers(self, sources: Sequence[Source]) -> None:
        """The schemas that records say they were written by."""
        if self._schemas is None:
            return
        told = {schema_number(source.record.value) for source in sources}
        numbers = sorted(number for number in told if number is not None and number not in self._writers)
        found = await asyncio.gather(
            *(self._reach_schemas(partial(_writer, self._schemas, number)) for number in numbers)
        )
        self._writers.update(zip(numbers, found, strict=True))

    def _envelope(self, record: Record) -> Envelope | Refused | Unavailable:
        number = schema_number(record.value) if self._writers else None
        writer = None if number is None else self._writers[number]
        if isinstance(writer, Unavailable):
            return writer
        try:
            return decode_record(record, {} if number is None or writer is None else {number: writer})
        except Refused as refused:
            return refused

    def _needs_body(self, envelope: Envelope, accepted: datetime | None) -> bool:
        """Data that lies in storage is read where a trigger asks for the event: its filter may look at it, and a run of
        what cannot be read any more is not begun. So is data that has to fit a schema.
        """
        return is_wanted(self.snapshot, envelope) or (accepted is None and has_schema(self.snapshot, envelope))

    async def _with_body(self, envelope: Envelope, accepted: datetime | None) -> Read:
        told = await self._reach_storage(partial(self._fetched, envelope, accepted))
        return Read(envelope, accepted, away=told) if isinstance(told, Unavailable) else told

    async def _fetched(self, envelope: Envelope, accepted: datetime | None) -> Read:
        reference = reference_of(envelope)
        if self._storage is None or reference is None:
            missing = "the data lies in storage, and no storage_url is set for ingest"
            return self._unread(envelope, accepted, Refused("E_STORED_BODY_MISSING", missing))
        try:
            stored = await self._storage.get(reference)
        except Refused as refused:
            return self._unread(envelope, accepted, refused)
        return self._matched(envelope, accepted, stored)

    def _unread(self, envelope: Envelope, accepted: datetime | None, refused: Refused) -> Read:
        """Somebody may put the data back: what can be redriven then is told of each trigger."""
        try:
            return Read(
                envelope,
                accepted,
                refused_unread(self.snapshot, envelope, refused, is_accepted=accepted is not None),
            )
        except Refused as unknown:  # the trigger that it names
            return Read(envelope, accepted, [unknown])

    def _unsigned(self, envelope: Envelope) -> Refused | None:
        """A webhook's runs are those that its door has promised, to whom signed for them."""
        if envelope.trigger_id is None:
            return None
        trigger = self.snapshot.triggers.get((envelope.project_id, envelope.trigger_id))
        if trigger is None or trigger.type != WEBHOOK:
            return None
        return Refused(
            "E_SIGNATURE",
            f"the event names {trigger.trigger_id}, a webhook, which takes nothing but what its door has verified; "
            "post it there, signed",
        )

    def _matched(self, envelope: Envelope, accepted: datetime | None, stored: bytes | None) -> Read:
        millis = self._now_millis if accepted is None else _millis(accepted)
        if accepted is None:  # a door has asked that already, and keeps its word
            unfit = unfitness(self.snapshot, envelope, stored)
            if unfit is not None:
                return Read(envelope, unfit=unfit)
        try:
            check_size(envelope.data)
            return Read(envelope, accepted, match(self.snapshot, envelope, millis=millis, now=self.now, stored=stored))
        except Refused as refused:
            return Read(envelope, accepted, [refused])


async def _writer(schemas: Schemas, number: int) -> WriterSchema | Refused:
    try:
        return await schemas.writer(number)
    except Refused as refused:
        return refused


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
