"""Keys go where the Java client would put them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.adapters.kafka.partitioner import murmur2, partition_of

GOLDEN = {  # from the tests of the Java client
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "value"), GOLDEN.items())
def test_the_hash_is_that_of_the_java_client(key: bytes, value: int):
    assert murmur2(key) == value & 0xFFFFFFFF


@pytest.mark.parametrize(("key", "value"), GOLDEN.items())
@pytest.mark.parametrize("partitions", [1, 6, 12])
def test_the_partition_is_the_hash_without_its_sign_modulo_the_partitions(key: bytes, value: int, partitions: int):
    assert partition_of(key, partitions) == (value & 0x7FFFFFFF) % partitions


@given(st.binary(max_size=64), st.integers(1, 200))
def test_every_key_has_a_partition(key: bytes, partitions: int):
    assert 0 <= partition_of(key, partitions) < partitions
