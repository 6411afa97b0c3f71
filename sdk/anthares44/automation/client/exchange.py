"""What a call and the connection under it say to each other; no socket and no clock is in here.

A call is a generator: it yields a `Request` and is sent what came of it, or yields a `Pause` and is sent None. So its
logic stands once, and the blocking and the asyncio client each only carry it out.
"""

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

from anthares44.automation.client.errors import ServiceRefused

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """`target` is path and query. `wait`: seconds that the service may take on purpose, beside the timeout."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class Reply:
    """Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Unreached:
    """No whole reply came; whether the request arrived is not known."""

    reason: str
    cause: Exception


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


Call: TypeAlias = Generator[Request | Pause, Reply | Unreached | None, T]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service is. `path` is what stands before the paths of its own, without a slash at its end."""

    is_secure: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_secure else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.is_secure else 'http'}://{self.authority}{self.path}"


_PRINTABLE = re.compile(r"[!-~]+")


def read_address(url: str, expected: str) -> Address:
    """Raises ServiceRefused E_CONFIG, which shows what was `expected`."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as exc:
        raise ServiceRefused("E_CONFIG", f"the address {url!r} cannot be read: {exc}; expected {expected}") from exc
    if parts.username or parts.password:
        raise ServiceRefused("E_CONFIG", f"the address holds a user or a password; expected {expected}")
    is_whole = parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment
    if not is_whole or not _PRINTABLE.fullmatch(url.strip()):
        raise ServiceRefused("E_CONFIG", f"the address is {url!r}; expected {expected}")
    is_secure = parts.scheme == "https"
    return Address(is_secure, str(parts.hostname), port or (443 if is_secure else 80), parts.path.rstrip("/"))
