"""Who calls: bearer tokens, each of one project, known for a few seconds once they were looked up.

A new token works at once; one that is revoked stops within `Limits.token_cache` seconds.
"""

import hashlib
import time

import structlog
from aiohttp import web

from processors.gateway.callers import CALLER, UNKNOWN
from processors.gateway.lookups import SharedLookup
from processors.gateway.senders.sender import header_bytes
from processors.ports.addresses import address_of, lies_in
from processors.ports.door import Door
from processors.ports.tokens import Token, Tokens
from schemas.errors import Refused

_log = structlog.get_logger(__name__)
_MAX_KNOWN = 10_000  # then all are forgotten: callers cannot make this process grow


class Access:
    def __init__(self, tokens: Tokens, door: Door, cache_seconds: float) -> None:
        self._door = door
        self._cache_seconds = cache_seconds
        self._known: dict[bytes, tuple[Token, float]] = {}
        self._lookup = SharedLookup(tokens.find)

    async def require(self, request: web.Request, scope: str) -> Token:
        """The caller's token. Raises Refused E_TOKEN, E_TOKEN_ADDRESS, E_SCOPE."""
        token = await self._find(_told(request))
        if token is None or (token.expires_at is not None and token.expires_at <= self._door.now()):
            raise _unknown("the token is not known, or it has expired")
        _check_address(token, request.get(CALLER, UNKNOWN))
        if not token.allows(scope):
            raise Refused(
                "E_SCOPE",
                f"the token {token.name!r} has {', '.join(sorted(token.scopes))}; this needs {scope}",
            )
        return token

    async def _find(self, text: bytes) -> Token | None:
        token_hash = hashlib.sha256(text).digest()
        now = time.monotonic()
        known = self._known.get(token_hash)
        if known is not None and now < known[1]:
            return known[0]
        token = await self._lookup.get(token_hash)
        if token is None:
            self._known.pop(token_hash, None)
            return None
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[token_hash] = (token, now + self._cache_seconds)
        return token


def _check_address(token: Token, caller: str) -> None:
    """A stolen token tells nothing of itself, not even its networks."""
    if not token.networks:
        return
    address = address_of(caller)
    if address is None or not lies_in(address, token.networks):
        _log.warning("token_elsewhere", token_id=token.token_id, project_id=token.project_id, caller=caller)
        raise Refused("E_TOKEN_ADDRESS", f"the token was made for certain networks, and this call comes from {caller}")


def _told(request: web.Request) -> bytes:
    told = request.headers.getall("Authorization", ())
    if len(told) != 1:
        raise _unknown("no token was sent" if not told else "several Authorization headers were sent")
    scheme, _, text = told[0].partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise _unknown("the Authorization header holds no bearer token")
    return header_bytes(text.strip())


def _unknown(why: str) -> Refused:
    return Refused("E_TOKEN", f"{why}; send `Authorization: Bearer <token>` with a token of your project")
