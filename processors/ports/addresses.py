"""Addresses of callers, and the networks that they are held against. IPv4 inside IPv6 counts as IPv4."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@lru_cache(maxsize=4096)
def address_of(text: str) -> Address | None:
    """What stands in a header or names a peer: with a port or not, in brackets or not. None for anything else."""
    told = text.strip().strip('"')
    if told.startswith("["):
        told = told[1:].partition("]")[0]
    elif told.count(":") == 1:
        told = told.partition(":")[0]
    try:
        address = ip_address(told.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def networks_of(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks such as `10.0.0.0/8`, or single addresses. Raises `ValueError` that says which text is none."""
    found = []
    for text in texts:
        try:
            found.append(ip_network(text.strip()))
        except ValueError as exc:
            raise ValueError(f"{text.strip()[:80]!r} is no network such as 203.0.113.0/24 ({exc})") from exc
    return tuple(found)


def lies_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)
