"""The ladder of retry topics: what cannot be handled now waits ten seconds, a minute, then ten minutes each time.

A record is put off in the transaction that moves the offset past it, and comes back as what it was at first: its value,
key, headers, time and place. It is put off so often that a day goes by, then it is a dead letter. One of a lane that
keeps its order, or could, is never put off: its partition waits for it.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from processors.ports.catalog import CatalogSnapshot
from processors.ports.ingest import Postponed
from processors.ports.streams import Record
from processors.runtime.unread import keeps_order
from schemas.envelope import Envelope
from schemas.errors import Refused
from schemas.retry_letters import RetryLetter, headers_text, read_letter, routing_key

_STRAY = Refused(
    "E_ENVELOPE_INVALID",
    "the record has no seal of the relay's; retry topics hold what ingest has put off, and nothing else: send events "
    "to the events topic",
)
MOST_TRIES = 145  # the first two, and ten minutes each time until a day is over
MOST_BYTES = 1_000_000  # what a topic takes as brokers are set up, with room for the frame around it


class Source(msgspec.Struct, frozen=True, gc=False):
    """A record as it first came in. `is_relayed`: the relay has published it, so a door has accepted it; `tries` is how
    often it was put off. `fault`: it stands on a retry topic, and nobody put it off.
    """

    record: Record
    is_relayed: bool
    tries: int = 0
    fault: Refused | None = None


class Ladder:
    """`delays` in seconds, by topic, in the order in which they are gone through."""

    def __init__(self, delays: Mapping[str, float]) -> None:
        self._delays = list(delays.items())

    def has(self, topic: str) -> bool:
        return any(topic == name for name, _ in self._delays)

    @property
    def longest(self) -> float:
        return max((seconds for _, seconds in self._delays), default=0.0)

    def letter(self, source: Source, code: str, now: datetime) -> Postponed | None:
        """The source as it goes to the next topic; None where it does not fit there, with all that is told of it."""
        if not self._delays:
            return None
        record, tries = source.record, source.tries + 1
        topic, seconds = self._delays[min(tries, len(self._delays)) - 1]
        letter = RetryLetter(
            code=code,
            due=now + timedelta(seconds=seconds),
            tries=tries,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            is_relayed=source.is_relayed,
            key=record.key,
            headers=record.headers,
        )
        key, headers, value = routing_key(letter), headers_text(letter), record.value or b""
        if len(key) + len(headers) + len(value) > MOST_BYTES:
            return None
        return Postponed(_letter_id(source, tries), topic, key, headers, value, code)


def may_wait_elsewhere(snapshot: CatalogSnapshot, source: Source, envelope: Envelope | None) -> bool:
    """Whether others may pass the record. One that was passed already has no place to keep any more; of one that nobody
    can read, its lane could be in any queue that keeps an order.
    """
    if source.tries:
        return True
    if envelope is None:
        return not snapshot.keeps_order_somewhere
    return not keeps_order(snapshot, envelope)


def source_of(record: Record, *, is_relayed: bool) -> Source:
    """What a record of a retry topic was at first; what the relay has not written there was put off by nobody."""
    if not is_relayed:
        return Source(record, is_relayed=False, fault=_STRAY)
    try:
        told = read_letter(record.headers)
    except Refused as fault:
        return Source(record, is_relayed=False, fault=fault)
    first = Record(told.topic, told.partition, told.offset, told.key, record.value, told.headers, told.timestamp_ms)
    return Source(first, told.is_relayed, told.tries)


def _letter_id(source: Source, tries: int) -> str:
    """The same for the same record in the same turn, so that it is put off once however often it is read."""
    record = source.record
    place = f"{record.topic}\0{record.partition}\0{record.offset}\0{tries}\0".encode()
    seed = place + msgspec.msgpack.encode((record.key, record.headers, record.value))
    return hashlib.sha256(seed).hexdigest()
