"""Standard Webhooks (version 1, symmetric): id, time and body with dots between, in base64; the id is the key.

`webhook-signature` may hold several signatures, of which any may fit: that is how senders rotate. Its other kinds
(`v1a`) are passed over. A secret is `whsec_` and the key in base64.
"""

import base64
import binascii
from typing import ClassVar

from processors.gateway.senders.sender import Claim, Draft, HeaderOf, Sender, header_bytes

ID = "webhook-id"
TIMESTAMP = "webhook-timestamp"
SIGNATURE = "webhook-signature"

_PREFIX = "whsec_"
_KIND = "v1,"


class StandardWebhooks(Sender):
    name: ClassVar[str] = "standard-webhooks"
    time_header: ClassVar[str | None] = TIMESTAMP

    def claim(self, header: HeaderOf) -> Claim:
        told, timestamp = header(ID), header(TIMESTAMP)
        signatures = [one.removeprefix(_KIND) for one in header(SIGNATURE).split(" ") if one.startswith(_KIND)]
        before = header_bytes(f"{told}.{timestamp}.")
        return Claim(signatures, before, header_bytes(timestamp), told or None)

    def headers(self, secret: str, draft: Draft) -> dict[str, str]:
        signature = self.sign(secret, f"{draft.delivery}.{draft.timestamp}.".encode() + draft.body)
        return {ID: draft.delivery, TIMESTAMP: draft.timestamp, SIGNATURE: f"{_KIND}{signature}"}

    def key(self, secret: str) -> bytes:
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            return b""

    def shown(self, secret: str) -> str:
        return _PREFIX + base64.b64encode(bytes.fromhex(secret)).decode()

    def spelled(self, digest: bytes) -> str:
        return base64.b64encode(digest).decode()
