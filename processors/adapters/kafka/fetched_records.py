"""What becomes of the bytes of a fetch: each record at once the one that handlers take, whatever its header names are.

Kafka's protocol wants header names in UTF-8, and no broker checks it. aiokafka gives the whole partition up over one
that is not, for ever: a batch that it cannot read is read once more, with the bytes at fault spelled out. And it would
make a record of its own from each first, which costs more than all the rest of reading.
"""

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy

from processors.ports.streams import Record


class _Forgiving(bytearray):
    """Bytes of a batch whose parts decode whatever they hold."""

    def __getitem__(self, part: Any) -> Any:
        found = super().__getitem__(part)
        return _Forgiving(found) if isinstance(part, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "backslashreplace") -> str:
        return super().decode(encoding, errors)


class _Batch:
    """One batch. Its records are read before the first is handed out: a fault in the middle would lose its rest."""

    def __init__(self, batch: Any, raw: memoryview) -> None:
        self._batch = batch
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        try:
            return iter(list(self._batch))
        except UnicodeDecodeError:
            again = _DefaultRecordBatchPy(self._raw)
            again._maybe_uncompress()  # noqa: SLF001  the parser has no other way in; pinned, and tested on batches
            again._buffer = _Forgiving(again._buffer)  # noqa: SLF001  same
            return iter(again)


class ForgivingRecords(_MemoryRecordsPy):  # type: ignore[misc]
    """The batches of one fetch."""

    def next_batch(self) -> _Batch | None:
        raw = self._next_slice
        batch = super().next_batch()
        return None if batch is None else _Batch(batch, raw)


class PlainRecords(fetcher.PartitionRecords):  # type: ignore[misc]
    """The records of one partition in a fetch."""

    def _consumer_record(self, tp: Any, record: Any) -> Record:
        headers = tuple(record.headers)
        return Record(tp.topic, tp.partition, record.offset, record.key, record.value, headers, record.timestamp)


def install() -> None:
    """Every consumer of this process reads by them: aiokafka has no setting for it."""
    fetcher.MemoryRecords = ForgivingRecords
    fetcher.PartitionRecords = PlainRecords
