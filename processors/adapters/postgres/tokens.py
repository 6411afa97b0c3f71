"""Bearer tokens in Postgres: stored as SHA-256, found by hash, expired by the database's clock."""

import hashlib
import json
import secrets
from collections.abc import Sequence

from psycopg.rows import tuple_row

from processors.adapters.postgres.pooled import Pool, ask, borrowed
from processors.adapters.postgres.statements import statements
from processors.ports.addresses import Network, networks_of
from processors.ports.tokens import SCOPES, Token
from schemas.errors import Refused
from schemas.ids import is_project_id

_PREFIX = "a44_"
_MAX_NAME = 100


class PostgresTokens:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sql = statements("tokens")

    async def find(self, hashes: Sequence[bytes]) -> dict[bytes, Token]:
        rows = await ask(self._pool, self._sql["find_tokens"], {"hashes": list(hashes)}, tuple_row)
        return {
            bytes(token_hash): Token(token_id, project_id, name, frozenset(scopes), expires_at, tuple(networks))
            for token_hash, token_id, project_id, name, scopes, expires_at, networks in rows
        }

    async def create_token(
        self,
        project_id: str,
        name: str,
        scopes: Sequence[str],
        *,
        expires_in: float | None = None,
        networks: Sequence[str] = (),
    ) -> str:
        """Raises Refused E_INVALID_PARAMETER for a project, name, scope, time or network that cannot be."""
        _check(project_id, name, scopes, expires_in)
        allowed = [str(network) for network in _networks(networks)]
        text = _PREFIX + secrets.token_urlsafe(32)
        row = {
            "token_hash": hashlib.sha256(text.encode()).digest(),
            "token_id": "tok_" + secrets.token_hex(8),
            "project_id": project_id,
            "name": name,
            "scopes": sorted(set(scopes)),
            "expires_in": expires_in,
            "networks": allowed,
        }
        told = {"name": name, "scopes": row["scopes"], "expires_in": expires_in, "networks": allowed}
        details = json.dumps(told)
        async with borrowed(self._pool) as conn, conn.transaction():
            await conn.execute(self._sql["create_token"], row)
            await conn.execute(self._sql["record_token"], {**row, "details": details})
        return text


def _networks(texts: Sequence[str]) -> Sequence[Network]:
    try:
        return networks_of(texts)
    except ValueError as exc:
        raise Refused("E_INVALID_PARAMETER", str(exc)) from exc


def _check(project_id: str, name: str, scopes: Sequence[str], expires_in: float | None) -> None:
    if not is_project_id(project_id):
        raise Refused(
            "E_INVALID_PARAMETER",
            f"{project_id[:80]!r} cannot be a project: a letter a-z, then a-z 0-9 _ -, 2 to 63 characters, "
            "and not `automation`",
        )
    if not name.strip() or len(name) > _MAX_NAME or not name.isprintable():
        raise Refused("E_INVALID_PARAMETER", f"a token's name is 1 to {_MAX_NAME} printable characters")
    unknown = sorted(set(scopes) - SCOPES)
    if unknown or not scopes:
        seen = f"the scope {unknown[0][:80]!r} is not known" if unknown else "no scope was given"
        raise Refused("E_INVALID_PARAMETER", f"{seen}; scopes are {', '.join(sorted(SCOPES))}")
    if expires_in is not None and expires_in <= 0:
        raise Refused("E_INVALID_PARAMETER", "a token that expires at once is of no use: give a positive time")
