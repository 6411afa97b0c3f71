"""What the doors allow: sizes in bytes, times in seconds, rates by the second."""

from dataclasses import dataclass

from processors.ports.addresses import Network
from schemas.stored_bodies import MOST_BODY


@dataclass(frozen=True, slots=True)
class Limits:
    """`batch` is how many events one request may hold, `bodies` how many bytes all requests together, `queued` how many
    may wait for their commit. `idle_seconds` is how long a connection may be without a request, `header_seconds` how
    long headers may take from their first byte on. `trusted_proxies` may say whose requests they bring.
    """

    body: int = MOST_BODY
    bodies: int = 64_000_000
    batch: int = 1_000
    queued: int = 20_000
    publication: int = 16_000_000
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    idle_seconds: float = 60.0
    connections: int = 4_000
    connections_per_address: int = 1_000
    trusted_proxies: tuple[Network, ...] = ()
    skew: float = 300.0
    wait: float = 60.0
    page: int = 500
    attempts: int = 1000
    token_cache: float = 3.0
    ping: float = 15.0
    dedup_window: float = 86_400.0
    redrive_rate: float = 50.0
