"""The numbers that the relay gives its records, dense in each partition, and the seal by which they are believed.

Whoever may write to a topic may write any header. The seal's key lies in Postgres, where relay and ingest read it, and
holds number, place, value and all other headers together: what the relay has not written so has none.
"""

from collections.abc import Iterable
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

SEQ_HEADER: Final = "a44-seq"
SEAL_HEADER: Final = "a44-seal"
_OURS: Final = frozenset({SEQ_HEADER, SEAL_HEADER})
_MOST_DIGITS: Final = 18
_SEAL_BYTES: Final = 16

Header = tuple[str, bytes | None]


def sealed(
    key: bytes, topic: str, partition: int, number: int, value: bytes, others: Iterable[Header] = ()
) -> tuple[tuple[str, bytes], ...]:
    """The headers that give a record with these `others` its number."""
    return (SEQ_HEADER, b"%d" % number), (SEAL_HEADER, _seal(key, topic, partition, number, value, others))


def number_of(key: bytes, topic: str, partition: int, headers: Iterable[Header], value: bytes | None) -> int | None:
    """The number that the relay gave; None for a record of somebody else's."""
    told = {name: text for name, text in headers if name in _OURS}
    number, seal = told.get(SEQ_HEADER), told.get(SEAL_HEADER)
    if value is None or not seal or not number or not number.isdigit() or len(number) > _MOST_DIGITS:
        return None
    others = (one for one in headers if one[0] not in _OURS)
    made = _seal(key, topic, partition, int(number), value, others)
    return int(number) if compare_digest(seal, made) else None


def _seal(key: bytes, topic: str, partition: int, number: int, value: bytes, others: Iterable[Header]) -> bytes:
    """Each part with its length before it, so that no two records are the same text."""
    made = blake2b(b"%d:%b %d %d " % (len(topic), topic.encode(), partition, number), key=key, digest_size=_SEAL_BYTES)
    for name, text in others:
        told, held = name.encode(errors="replace"), text or b""
        made.update(b"%d:%b%d:%b" % (len(told), told, len(held), held))
    made.update(b" %d:%b" % (len(value), value))
    return made.hexdigest().encode()
