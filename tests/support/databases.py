"""Databases for tests: cheap, empty or copied from a template, and gone afterwards."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql


def with_database(dsn: str, name: str) -> str:
    """The same address with another database."""
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{quote(name)}"))


@asynccontextmanager
async def fresh_database(admin_dsn: str, template: str | None = None) -> AsyncIterator[str]:
    """Address of a database that only this block knows; connections left open do not keep it alive."""
    name = f"t_{secrets.token_hex(6)}"
    create = sql.SQL("create database {}").format(sql.Identifier(name))
    if template is not None:
        # The files as they are: through the log, which is the default, takes half as long again.
        create += sql.SQL(" template {} strategy file_copy").format(sql.Identifier(template))
    await _run(admin_dsn, create)
    try:
        yield with_database(admin_dsn, name)
    finally:
        await _run(admin_dsn, sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


async def _run(admin_dsn: str, statement: sql.Composed) -> None:
    async with await psycopg.AsyncConnection.connect(admin_dsn, autocommit=True) as connection:
        await connection.execute(statement)
