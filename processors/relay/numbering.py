"""Gives each row its partition, the same as the Java client would, and the next number there.

Numbers of a batch are kept when the batch is: one that comes again gets the same numbers.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from processors.adapters.kafka.partitioner import murmur2
from processors.ports.relay import Numbers, OutboxRow
from processors.ports.streams import Outgoing
from schemas.relay_numbers import sealed

SHARD_HEADER: Final = "a44-shard"

_headers = msgspec.json.Decoder(dict[str, str])
_hash = lru_cache(maxsize=65_536)(murmur2)


class Numbering:
    def __init__(self, shard: int) -> None:
        self._shard_header = (SHARD_HEADER, str(shard).encode())
        self._kept: dict[tuple[str, int], int] = {}
        self._fresh: dict[tuple[str, int], int] = {}
        self._seal_key = b""

    def begin(self, kept: Mapping[tuple[str, int], int], seal_key: bytes) -> None:
        """Count on from these numbers."""
        self._kept, self._fresh, self._seal_key = dict(kept), {}, seal_key

    def begin_batch(self) -> None:
        self._fresh = {}

    def outgoing(self, row: OutboxRow, partitions: int) -> Outgoing:
        key = row.partition_key.encode()
        place = (row.topic, (_hash(key) & 0x7FFFFFFF) % partitions)
        number = self._fresh[place] = self._fresh.get(place, self._kept.get(place, 0)) + 1
        others: tuple[tuple[str, bytes], ...] = (self._shard_header,)
        if row.headers is not None:
            others += tuple((name, text.encode()) for name, text in _headers.decode(row.headers).items())
        own = sealed(self._seal_key, row.topic, place[1], number, row.value, others)
        return Outgoing(row.topic, key, row.value, own + others, place[1])

    @property
    def of_batch(self) -> Numbers:
        """The last number of each partition that the batch has touched."""
        return self._fresh

    def keep_batch(self) -> None:
        self._kept.update(self._fresh)
