"""Streams between the planes: records in polls, batches out with a report for each, topics and their ids.

The unit of work is the batch in both directions. Nothing here promises more than at-least-once: order
within a partition is kept, a record may come again after a crash, a rebalance or a retry.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from schemas.errors import Refused, Unavailable
from schemas.framing import Headers
from topology.topics import TopicSpec


class Record(msgspec.Struct, gc=False):
    """One record as it was read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Outgoing(msgspec.Struct, gc=False):
    """One record to be written. Without `partition` it is murmur2 of the key, as the Java client does."""

    topic: str
    key: bytes
    value: bytes
    headers: Headers = ()
    partition: int | None = None


class Delivery(msgspec.Struct, gc=False):
    """Where a record was written."""

    partition: int
    offset: int


class Producer(Protocol):
    async def ready(self, topics: Collection[str]) -> None:
        """Return once batches for these topics need no more than to be written. Raises `Unavailable` after as long as
        a batch may take for each; what was reached by then is kept.
        """

    async def send(self, batch: Sequence[Outgoing]) -> list[Delivery | Unavailable | Refused]:
        """Write a batch and wait for all reports; answers stand in the order of the batch. `Refused` is of a record
        that will never be taken as it is.

        Order within a partition is the order of the batch, up to the first record that failed.
        """

    def send_unawaited(self, batch: Sequence[Outgoing]) -> None:
        """Write hints: nobody waits, and one that cannot be written is dropped."""

    async def aclose(self) -> None:
        """Write what is waiting, for a short while, and let go of the broker."""


class Later(NamedTuple):
    """A partition is left alone for so many seconds and goes on at this offset then; others go on meanwhile."""

    offset: int
    seconds: float


class BatchHandler(Protocol):
    """Takes a whole poll; offsets rise within each partition."""

    async def __call__(self, records: Sequence[Record]) -> Mapping[int, Later] | None:
        """Return only when the batch is durable, but for the partitions of the answer, where that is true up to the
        offset that is told. `Unavailable`: the same records come again, later.

        Any other error ends the consumer, which raises it.
        """


class Positions(Protocol):
    async def positions(self, topic: str, topic_id: str, partitions: Sequence[int]) -> Mapping[int, int]:
        """The next offset to read in each partition; one that is missing is read from its beginning.

        `topic_id` tells a topic that was made again from the one the offsets were counted in.
        """


class Phase(StrEnum):
    WAITING = "waiting"  # the broker or the topic is not there yet, or went away
    ASSIGNED = "assigned"  # positioned; these partitions are being read (perhaps none)
    REVOKED = "revoked"  # these partitions are no longer read here
    RETRYING = "retrying"  # the handler said `Unavailable`: paused, the same records come again


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """What a consumer is doing. `reason` says why it waits or retries."""

    phase: Phase
    partitions: frozenset[int] = frozenset()
    reason: str = ""


StateListener = Callable[[ConsumerState], None]


class Admin(Protocol):
    async def ensure_topics(self, specs: Sequence[TopicSpec], replication: int = 1) -> list[str]:
        """Make the topics that are missing; answer their names. Topics that exist are left as they are."""

    async def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """The ids of the topics that exist. A topic made again has another id."""

    async def end_offsets(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """The offsets that the next records will get."""

    async def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """How many partitions the topics have that exist."""
