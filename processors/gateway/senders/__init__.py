"""Those whose webhooks are taken, by the name that a trigger's `verify` gives. There is none that verifies nothing."""

from collections.abc import Mapping

from processors.gateway.senders.a44 import A44
from processors.gateway.senders.github import GitHub
from processors.gateway.senders.sender import Claim, Draft, HeaderOf, Sender
from processors.gateway.senders.shopify import Shopify
from processors.gateway.senders.slack import Slack
from processors.gateway.senders.standard_webhooks import StandardWebhooks
from processors.gateway.senders.stripe import Stripe
from topology.verification import OWN

_ALL: tuple[Sender, ...] = (A44(), StandardWebhooks(), GitHub(), Stripe(), Slack(), Shopify())
SENDERS: Mapping[str, Sender] = {one.name: one for one in _ALL}
OURS = SENDERS[OWN]

__all__ = ["OURS", "SENDERS", "Claim", "Draft", "HeaderOf", "Sender"]
