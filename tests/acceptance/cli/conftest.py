"""A database of the project's own, beside the one of the log."""

import secrets
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest_asyncio
from psycopg import sql


@pytest_asyncio.fixture
async def project_dsn(postgres_dsn: str) -> AsyncIterator[str]:
    """Address of an empty database with a role of its own."""
    name, password = f"shop_{secrets.token_hex(6)}", secrets.token_hex(16)
    owner = sql.Identifier(name)
    async with await psycopg.AsyncConnection.connect(postgres_dsn, autocommit=True) as admin:
        await admin.execute(sql.SQL("create role {} login password {}").format(owner, sql.Literal(password)))
        await admin.execute(sql.SQL("create database {} owner {}").format(owner, owner))
        parts = urlsplit(postgres_dsn)
        address = f"{name}:{password}@{parts.hostname}:{parts.port}"
        try:
            yield urlunsplit(parts._replace(netloc=address, path=f"/{name}"))
        finally:
            await admin.execute(sql.SQL("drop database {} with (force)").format(owner))
            await admin.execute(sql.SQL("drop role {}").format(owner))
