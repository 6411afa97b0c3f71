"""Headers that prove who sends a webhook: over the exact bytes that are sent, at the time of sending.

The time of the event itself belongs into the body. Signed anew for every try, a late one is never refused as too old.
"""

import hmac
import re
import time

from anthares44.automation.client.errors import ServiceRefused

KEY = "A44-Idempotency-Key"

_UNCARRIABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def webhook_headers(secret: str, body: bytes, *, key: str, at: float | None = None) -> dict[str, str]:
    """For one sending of exactly these bytes; `at` is Unix time in seconds, now by default."""
    timestamp = str(int(time.time() if at is None else at))
    signature = hmac.digest(secret.encode(), timestamp.encode() + b"." + body, "sha256").hex()
    return {
        "Content-Type": "application/json",
        "A44-Timestamp": timestamp,
        "A44-Signature": signature,
        KEY: checked_key(key),
    }


def checked_key(key: str) -> str:
    """A key that arrives as it is. Raises ServiceRefused E_IDEMPOTENCY_KEY_INVALID."""
    if not key.strip() or key != key.strip() or _UNCARRIABLE.search(key):
        raise ServiceRefused(
            "E_IDEMPOTENCY_KEY_INVALID",
            f"the idempotency key is {key[:80]!r}; expected text without spaces around it or control characters, made "
            "from what the event is about, such as invoice:inv_8812:finalized:v1",
        )
    return key


def checked_secret(what: str, text: str) -> str:
    """A token or a secret, never shown. Raises ServiceRefused E_CREDENTIALS."""
    if not text or not text.isascii() or not text.isprintable() or text != text.strip():
        raise ServiceRefused(
            "E_CREDENTIALS",
            f"{what} is empty, or holds a space around it or a control character; give it as it was shown",
        )
    return text
