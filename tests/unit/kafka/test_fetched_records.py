"""Records are read as handlers take them; one whose header name is not UTF-8 costs nobody a record, not even itself."""

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from processors.adapters.kafka import consumer_thread
from processors.adapters.kafka.fetched_records import ForgivingRecords, PlainRecords
from processors.ports.streams import Record

NONE, GZIP = 0, 1


class Foreign(str):
    """A name that goes out as bytes which are no UTF-8, as clients without text types send them."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"\xff\xfe" + super().encode(encoding, errors)


def batch(*names: str, codec: int = NONE, base: int = 0) -> bytes:
    builder = _DefaultRecordBatchBuilderPy(2, codec, False, -1, -1, -1, 1_000_000)
    for place, name in enumerate(names):
        assert builder.append(place, 1_000, b"key", b"value %d" % place, [(name, b"header")]) is not None
    made = builder.build()
    made[0:8] = base.to_bytes(8, "big")  # outside of the checksum, as brokers set it
    return bytes(made)


def read(data: bytes) -> list[tuple[int, bytes, str]]:
    records, found = ForgivingRecords(data), []
    while records.has_next():
        one = records.next_batch()
        assert one is not None
        assert one.validate_crc()
        found += [(record.offset, record.value, record.headers[0][0]) for record in one]
    return found


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_a_name_that_is_not_utf_8_is_read_with_its_bytes_spelled_out(codec: int) -> None:
    data = batch("plain", Foreign("x"), "after", codec=codec)
    with pytest.raises(UnicodeDecodeError):
        list(fetcher_s_own(data).next_batch())
    assert read(data) == [(0, b"value 0", "plain"), (1, b"value 1", "\\xff\\xfex"), (2, b"value 2", "after")]


def test_batches_before_and_after_are_read_as_ever() -> None:
    data = batch("ümlaut") + batch(Foreign("x"), base=1) + batch("last", base=2)
    assert [(offset, name) for offset, _, name in read(data)] == [(0, "ümlaut"), (1, "\\xff\\xfex"), (2, "last")]


def test_consumers_read_by_it() -> None:
    assert consumer_thread.fetched_records.ForgivingRecords is fetcher.MemoryRecords
    assert consumer_thread.fetched_records.PlainRecords is fetcher.PartitionRecords


def test_records_come_out_as_handlers_take_them() -> None:
    place = TopicPartition("events", 3)
    read_all = PlainRecords(place, ForgivingRecords(batch("a", "b", base=7)), None, 8, None, None, True, 0)
    assert list(read_all) == [Record("events", 3, 8, b"key", b"value 1", (("b", b"header"),), 1_000)]
    assert read_all.next_fetch_offset == 9


def fetcher_s_own(data: bytes):
    from aiokafka.record.memory_records import MemoryRecords  # noqa: PLC0415  beside ours, for comparison

    return MemoryRecords(data)
