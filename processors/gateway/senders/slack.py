"""Slack's Events API: `X-Slack-Signature` over `v0:`, the time, a colon and the body; the event's id in the body is the
key. The question that Slack asks when an address is entered (`url_verification`) is answered at once. Only JSON is
taken: slash commands and buttons, which come as forms, are refused with 415.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from processors.gateway.senders.sender import Claim, Draft, HeaderOf, Sender, header_bytes

SIGNATURE = "X-Slack-Signature"
TIMESTAMP = "X-Slack-Request-Timestamp"

_PREFIX = "v0="


class Slack(Sender):
    name: ClassVar[str] = "slack"
    time_header: ClassVar[str | None] = TIMESTAMP
    id_in_body: ClassVar[str | None] = "event_id"

    def claim(self, header: HeaderOf) -> Claim:
        timestamp = header_bytes(header(TIMESTAMP))
        return Claim([header(SIGNATURE)], b"v0:" + timestamp + b":", timestamp)

    def headers(self, secret: str, draft: Draft) -> dict[str, str]:
        signature = self.sign(secret, f"v0:{draft.timestamp}:".encode() + draft.body)
        return {TIMESTAMP: draft.timestamp, SIGNATURE: signature}

    def spelled(self, digest: bytes) -> str:
        return _PREFIX + digest.hex()

    def reply(self, data: Any) -> Mapping[str, str] | None:
        if not isinstance(data, Mapping) or data.get("type") != "url_verification":
            return None
        challenge = data.get("challenge")
        return {"challenge": challenge} if isinstance(challenge, str) else None
