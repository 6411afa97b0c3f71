"""Stripe: `Stripe-Signature` holds the time and signatures of the kind `v1` over time, dot and body; others are passed
over. The event's own id, in the body, is the key. Stripe may send an event again with another count of endpoints that
still wait for it (`pending_webhooks`): bodies of one id are one event.
"""

from typing import ClassVar

from processors.gateway.senders.sender import Claim, Draft, HeaderOf, Sender, header_bytes

SIGNATURE = "Stripe-Signature"


class Stripe(Sender):
    name: ClassVar[str] = "stripe"
    time_header: ClassVar[str | None] = SIGNATURE
    id_in_body: ClassVar[str | None] = "id"
    id_is_identity: ClassVar[bool] = True

    def claim(self, header: HeaderOf) -> Claim:
        parts = [part.strip().partition("=") for part in header(SIGNATURE).split(",")]
        times = [value for kind, _, value in parts if kind == "t"]
        timestamp = header_bytes(times[0]) if len(times) == 1 else b""
        return Claim([value for kind, _, value in parts if kind == "v1"], timestamp + b".", timestamp)

    def headers(self, secret: str, draft: Draft) -> dict[str, str]:
        signature = self.sign(secret, draft.timestamp.encode() + b"." + draft.body)
        return {SIGNATURE: f"t={draft.timestamp},v1={signature}"}
