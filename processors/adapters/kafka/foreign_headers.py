"""Record batches whose header names are not UTF-8: read all the same, so that one record cannot stop a partition.

Kafka's protocol wants names in UTF-8, and no broker checks it. aiokafka gives the whole partition up over such a
name, for ever. A batch that it cannot read is read once more, with the bytes at fault spelled out.
"""

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy


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


def install() -> None:
    """Every consumer of this process reads by it: aiokafka has no setting for the reader of batches."""
    fetcher.MemoryRecords = ForgivingRecords
