"""Whose request it is: the address that the connection comes from, or the one behind a proxy that is trusted.

Anybody can write `X-Forwarded-For`. It counts only where the peer is one of `trusted_proxies`, and only from the right:
each proxy appends the address that it saw, so the first one from the right that is no trusted proxy is the caller, and
whatever stands left of it was written by whoever wanted to.
"""

from collections.abc import Sequence

from aiohttp import web

from processors.ports.addresses import Network, address_of, lies_in

CALLER = web.RequestKey("caller", str)
FORWARDED = "X-Forwarded-For"
UNKNOWN = "unknown"


class Callers:
    def __init__(self, trusted: Sequence[Network] = ()) -> None:
        self._trusted = trusted

    def is_proxy(self, peer: str) -> bool:
        address = address_of(peer) if self._trusted else None
        return address is not None and lies_in(address, self._trusted)

    def caller(self, peer: str, forwarded: Sequence[str]) -> str:
        """`forwarded` holds the headers as they came."""
        caller = peer
        if not forwarded or not self.is_proxy(peer):
            return caller
        for text in reversed(",".join(forwarded).split(",")):
            address = address_of(text)
            if address is None:
                break  # whoever wrote this is no proxy of ours
            caller = str(address)
            if not lies_in(address, self._trusted):
                break
        return caller


def peer_of(transport: object) -> str:
    """The address at the other end; the same word for all that have none."""
    told = transport.get_extra_info("peername") if hasattr(transport, "get_extra_info") else None
    return str(told[0]) if isinstance(told, tuple) and told else UNKNOWN
