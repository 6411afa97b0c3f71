"""GitHub: `X-Hub-Signature-256` over the body alone, as `sha256=` and hex; the delivery's id is the key, and stays the
same when it is sent again. The signature holds no time and no id: it does not protect against a captured request.
"""

from typing import ClassVar

from processors.gateway.senders.sender import Claim, Draft, HeaderOf, Sender

SIGNATURE = "X-Hub-Signature-256"
DELIVERY = "X-GitHub-Delivery"

_PREFIX = "sha256="


class GitHub(Sender):
    name: ClassVar[str] = "github"

    def claim(self, header: HeaderOf) -> Claim:
        return Claim([header(SIGNATURE)], delivery=header(DELIVERY) or None)

    def headers(self, secret: str, draft: Draft) -> dict[str, str]:
        return {DELIVERY: draft.delivery, SIGNATURE: self.sign(secret, draft.body)}

    def spelled(self, digest: bytes) -> str:
        return _PREFIX + digest.hex()
