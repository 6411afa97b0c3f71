"""Bearer tokens: who may call the API, for which project and with which scopes.

A token is shown once, when it is made; only its SHA-256 is stored. Two scopes stand beside reading and writing and
include neither: what dead letters hold whole, and what belongs to no project.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from processors.ports.addresses import Network

READ = "automation:read"
WRITE = "automation:write"
DEAD_LETTERS = "automation:dead-letters"
OPERATOR = "automation:operator"
SCOPES = frozenset({READ, WRITE, DEAD_LETTERS, OPERATOR})


@dataclass(frozen=True, slots=True)
class Token:
    """`networks` are those that it may be used from; none means from anywhere."""

    token_id: str
    project_id: str
    name: str
    scopes: frozenset[str]
    expires_at: datetime | None
    networks: Sequence[Network] = ()

    def allows(self, scope: str) -> bool:
        """Who may write may also read: a pipeline that publishes and runs can see what became of it."""
        return scope in self.scopes or (scope == READ and WRITE in self.scopes)


class Tokens(Protocol):
    async def find(self, hashes: Sequence[bytes]) -> dict[bytes, Token]:
        """The tokens with these hashes that are not revoked. Raises `Unavailable`."""

    async def create_token(
        self,
        project_id: str,
        name: str,
        scopes: Sequence[str],
        *,
        expires_in: float | None = None,
        networks: Sequence[str] = (),
    ) -> str:
        """Make a token and answer its text, which is told only now. `expires_in` is in seconds; `networks` such as
        `203.0.113.0/24` are where it may be used from.
        """
