"""Keys go where the Java client would put them."""

import os
import subprocess
import sys

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
def test_d18_the_hash_is_that_of_the_java_client(key: bytes, value: int):
    assert murmur2(key) == value & 0xFFFFFFFF


@pytest.mark.parametrize(("key", "value"), GOLDEN.items())
@pytest.mark.parametrize("partitions", [1, 6, 12])
def test_d18_the_partition_is_the_hash_without_its_sign_modulo_the_partitions(key: bytes, value: int, partitions: int):
    assert partition_of(key, partitions) == (value & 0x7FFFFFFF) % partitions


@given(st.binary(max_size=64), st.integers(1, 200))
def test_every_key_has_a_partition(key: bytes, partitions: int):
    assert 0 <= partition_of(key, partitions) < partitions


LANES = [f"lane-{number}".encode() for number in range(24)]
PLACES = [7, 1, 3, 4, 8, 3, 3, 0, 11, 3, 11, 10, 6, 3, 11, 7, 10, 5, 3, 6, 7, 3, 5, 8]
ASK = """
from processors.adapters.kafka.partitioner import partition_of
print([partition_of(f"lane-{number}".encode(), 12) for number in range(24)])
"""


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_d19_every_interpreter_puts_a_key_in_the_same_partition(seed: str):
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, check=True, text=True)
    assert told.stdout.strip() == str(PLACES)
    assert [partition_of(lane, 12) for lane in LANES] == PLACES
