"""Our own way: `A44-Signature` over the time, a dot and the body, in lower-case hex; the key stands in a header."""

from typing import ClassVar

from processors.gateway.senders.sender import Claim, Draft, HeaderOf, Sender, header_bytes
from topology.verification import OWN

SIGNATURE = "A44-Signature"
TIMESTAMP = "A44-Timestamp"


class A44(Sender):
    name: ClassVar[str] = OWN
    time_header: ClassVar[str | None] = TIMESTAMP

    def claim(self, header: HeaderOf) -> Claim:
        timestamp = header_bytes(header(TIMESTAMP))
        return Claim([header(SIGNATURE)], timestamp + b".", timestamp)

    def headers(self, secret: str, draft: Draft) -> dict[str, str]:
        signature = self.sign(secret, draft.timestamp.encode() + b"." + draft.body)
        return {TIMESTAMP: draft.timestamp, SIGNATURE: signature}
