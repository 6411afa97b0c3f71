"""Chance and ids that replay alike: SHA-256 of the run's seed, the place in the run and an ordinal.

In the body the place is the seq of the turn's delivery; in a step it is the step's id, so that each try
of a step draws the same values. Any language gets the same numbers (golden vectors in the tests).
"""

import hashlib
from uuid import UUID

_FRACTION_BITS = 53


def _digest(seed: str, generation: int, place: str, ordinal: int) -> bytes:
    return hashlib.sha256(f"{seed}:{generation}:{place}:{ordinal}".encode()).digest()


def place_in_body(seq: int) -> str:
    return str(seq)


def place_in_step(item: str) -> str:
    return f"step/{item}"


def number(seed: str, generation: int, place: str, ordinal: int) -> float:
    """A float in [0, 1): the first 53 bits of the digest."""
    first = int.from_bytes(_digest(seed, generation, place, ordinal)[:8], "big")
    return float((first >> (64 - _FRACTION_BITS)) * 2.0**-_FRACTION_BITS)


def identifier(seed: str, generation: int, place: str, ordinal: int) -> UUID:
    """A UUID from the first 16 bytes, marked as version 4 (RFC 9562)."""
    return UUID(bytes=_digest(seed, generation, place, ordinal)[:16], version=4)
