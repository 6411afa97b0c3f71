"""Shopify: `X-Shopify-Hmac-Sha256` over the body alone, in base64, under the app's client secret; the delivery's id is
the key. The signature holds no time and no id: it does not protect against a captured request.
"""

import base64
from typing import ClassVar

from processors.gateway.senders.sender import Claim, Draft, HeaderOf, Sender

SIGNATURE = "X-Shopify-Hmac-Sha256"
DELIVERY = "X-Shopify-Webhook-Id"


class Shopify(Sender):
    name: ClassVar[str] = "shopify"

    def claim(self, header: HeaderOf) -> Claim:
        return Claim([header(SIGNATURE)], delivery=header(DELIVERY) or None)

    def headers(self, secret: str, draft: Draft) -> dict[str, str]:
        return {DELIVERY: draft.delivery, SIGNATURE: self.sign(secret, draft.body)}

    def spelled(self, digest: bytes) -> str:
        return base64.b64encode(digest).decode()
