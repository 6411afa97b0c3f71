"""Webhook signatures: secrets that are computed, never stored, and checked over the bytes as received.

A secret is HMAC-SHA256 of its trigger's name and its number under the master key, told as 64 hex digits; that text
is the key that senders sign with. Which numbers live, the catalog says. The signature is HMAC-SHA256 over
`timestamp + "." + body`, lower-case hex.
"""

import hmac
from collections.abc import Sequence

from schemas.errors import Refused

SIGNATURE = "A44-Signature"
TIMESTAMP = "A44-Timestamp"
MIN_MASTER_KEY = 32
MOST_LIVE = 2  # secrets of a trigger at a time

_LABEL = b"a44.webhook.v1\0"
_NO_SECRET = 0  # the number that no secret has
_MAX_TIMESTAMP = 12  # digits of Unix seconds: enough for thirty thousand years


class Secrets:
    """The secrets of all webhook triggers of an installation."""

    def __init__(self, master_key: bytes) -> None:
        if len(master_key) < MIN_MASTER_KEY:
            raise Refused(
                "E_CONFIG",
                f"the master key has {len(master_key)} bytes; at least {MIN_MASTER_KEY} are needed: "
                "make one with `openssl rand -hex 32`",
            )
        self._master_key = master_key

    def secret(self, project_id: str, trigger_id: str, number: int) -> str:
        """The secret as senders know it: 64 hex digits."""
        name = b"\0".join((project_id.encode(), trigger_id.encode(), str(number).encode()))
        return hmac.digest(self._master_key, _LABEL + name, "sha256").hex()

    def sign(self, project_id: str, trigger_id: str, number: int, timestamp: bytes, body: bytes) -> str:
        secret = self.secret(project_id, trigger_id, number)
        return hmac.digest(secret.encode(), timestamp + b"." + body, "sha256").hex()

    def fitting(
        self, project_id: str, trigger_id: str, numbers: Sequence[int], timestamp: bytes, body: bytes, told: bytes
    ) -> int | None:
        """Which of a trigger's secrets made the signature; None for none. To say no costs as much for every trigger,
        with one secret, with two, or with none because there is no such trigger.
        """
        for number in [*numbers, *([_NO_SECRET] * MOST_LIVE)][:MOST_LIVE]:
            fits = same(told, self.sign(project_id, trigger_id, number, timestamp, body))
            if fits and number != _NO_SECRET:
                return number
        return None


def header_bytes(value: str) -> bytes:
    """A header as it stood on the wire: bytes that are no text come back as they were."""
    return value.encode("utf-8", "surrogateescape")


def same(told: bytes, expected: str) -> bool:
    """Compared as bytes and in constant time: a signature that is no ASCII is merely wrong."""
    return hmac.compare_digest(told, expected.encode())


def seconds_off(timestamp: bytes, now: float) -> float | None:
    """How far a timestamp is from `now`, in seconds and either way; None when it is no Unix time."""
    if not timestamp.isdigit() or len(timestamp) > _MAX_TIMESTAMP:
        return None
    return abs(now - int(timestamp))
