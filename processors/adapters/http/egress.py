"""Where a connector may connect to: the addresses of its own base URL, as far as they are allowed at all.

A name is resolved once and all of its addresses are checked; the connection goes to those very addresses,
so nothing can change between check and use. Link-local, metadata, multicast and unspecified addresses are
never allowed; loopback and private ones only where the settings say so.
"""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from schemas.errors import Refused

_Address = IPv4Address | IPv6Address

# Where clouds answer with a machine's credentials, beside the link-local ones.
_METADATA = frozenset(map(ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")))
_NAT64 = ip_network("64:ff9b::/96")


class Egress:
    """The rule for addresses. `allow_private` is for stacks where partners run beside the service."""

    def __init__(self, *, allow_private: bool = False) -> None:
        self._allow_private = allow_private

    def check(self, text: str) -> None:
        """Raises Refused E_EGRESS_DENIED for an address that must not be connected to."""
        address = _meant(ip_address(text.partition("%")[0]))
        if address.is_link_local or address.is_multicast or address.is_unspecified or address in _METADATA:
            raise _denied(text, "no connector may connect to link-local, metadata or multicast addresses")
        if not self._allow_private and not _is_public(address):
            raise _denied(
                text, "loopback and private addresses are allowed only where the setting allow_private_egress is on"
            )

    def check_host(self, host: str) -> None:
        """As `check`, for a host that is an address; names are checked where they are resolved."""
        try:
            ip_address(host)
        except ValueError:
            return
        self.check(host)


class CheckedResolver(AbstractResolver):
    """Resolves names to addresses that have passed the rule, or refuses the name."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for result in found:
            self._egress.check(result["host"])
        return found

    async def close(self) -> None:
        await self._resolver.close()


def _meant(address: _Address) -> _Address:
    """The IPv4 address that an IPv6 address stands for, if it does."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _is_public(address: _Address) -> bool:
    return address.is_global and not (isinstance(address, IPv6Address) and address.is_site_local)


def _denied(address: str, rule: str) -> Refused:
    return Refused("E_EGRESS_DENIED", f"the base URL leads to {address}, which is not allowed: {rule}")
