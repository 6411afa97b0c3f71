"""The partition of a key as the Java client computes it: murmur2, sign bit off, modulo the partitions."""

from struct import unpack_from

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Hash as Kafka's own variant of murmur2 does; the answer is unsigned, 32 bits."""
    length = len(data)
    value, words = _SEED ^ length, length // 4
    for word in unpack_from(f"<{words}I", data):
        mixed = (word * _M) & _MASK
        value = ((value * _M) & _MASK) ^ ((mixed ^ (mixed >> 24)) * _M)  # what is above 32 bits goes at the next step
    if length % 4:
        value = (value ^ int.from_bytes(data[4 * words :], "little")) * _M
    value &= _MASK
    value = ((value ^ (value >> 13)) * _M) & _MASK
    return value ^ (value >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
