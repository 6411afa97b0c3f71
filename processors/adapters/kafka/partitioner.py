"""The partition of a key as the Java client computes it: murmur2, sign bit off, modulo the partitions."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Hash as Kafka's own variant of murmur2 does; the answer is unsigned, 32 bits."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        word = (int.from_bytes(data[at : at + 4], "little") * _M) & _MASK
        word = ((word ^ (word >> 24)) * _M) & _MASK
        value = ((value * _M) & _MASK) ^ word
    if length > whole:
        value = ((value ^ int.from_bytes(data[whole:], "little")) * _M) & _MASK
    value = ((value ^ (value >> 13)) * _M) & _MASK
    return value ^ (value >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
