"""What all senders have in common: HMAC-SHA256 over the body as it came, told in a header, compared in constant time.

They differ in what is signed before the body, in how secret and signature are spelled, and in where a delivery has its
id. Nothing here reads the body as JSON: that comes after the signature fitted.
"""

import hmac
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

HeaderOf = Callable[[str], str]  # a header that stands once; an empty text for any other


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request says of itself. `timestamp` None: this sender signs no time. `delivery` is the delivery's id."""

    signatures: Sequence[str]
    before: bytes = b""
    timestamp: bytes | None = None
    delivery: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A request that is to be signed."""

    body: bytes
    timestamp: str
    delivery: str


class Sender(ABC):
    """One way of signing. `time_header` is where the time stands, for the words of a refusal; `id_in_body` says that a
    delivery's id is a part of the body, and `id_is_identity` that bodies of one id may differ and are one event.
    """

    name: ClassVar[str]
    time_header: ClassVar[str | None] = None
    id_in_body: ClassVar[str | None] = None
    id_is_identity: ClassVar[bool] = False

    @abstractmethod
    def claim(self, header: HeaderOf) -> Claim:
        """What the headers say, whatever they hold."""

    @abstractmethod
    def headers(self, secret: str, draft: Draft) -> dict[str, str]:
        """The headers of a request that fits."""

    def key(self, secret: str) -> bytes:
        """The HMAC key in a secret as its sender shows it; empty where it holds none."""
        return secret.encode()

    def shown(self, secret: str) -> str:
        """A secret of ours, 64 hex digits, in the form that this sender takes."""
        return secret

    def spelled(self, digest: bytes) -> str:
        return digest.hex()

    def delivery(self, claim: Claim, data: Any) -> str | None:
        """The id that tells a repeated delivery from a new one."""
        if self.id_in_body is None:
            return claim.delivery
        told = data.get(self.id_in_body) if isinstance(data, Mapping) else None
        return told if isinstance(told, str) and told else None

    def reply(self, data: Any) -> Mapping[str, str] | None:  # noqa: ARG002  most have none
        """The answer to a request that only asks whether somebody is there; None for all others."""
        return None

    def sign(self, secret: str, signed: bytes) -> str:
        return self.spelled(hmac.digest(self.key(secret), signed, "sha256"))

    def fits(self, secret: str, claim: Claim, body: bytes) -> bool:
        """Whether one of the signatures was made with this secret."""
        expected = self.sign(secret, claim.before + body).encode()
        found = [hmac.compare_digest(header_bytes(told), expected) for told in claim.signatures]
        return any(found) and bool(self.key(secret))


def header_bytes(value: str) -> bytes:
    """A header as it stood on the wire: bytes that are no text come back as they were."""
    return value.encode("utf-8", "surrogateescape")
