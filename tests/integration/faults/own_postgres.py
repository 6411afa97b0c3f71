"""A PostgreSQL of a test module's own, which it may stop, kill and fill up."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ops.embedded.account import choose_account
from ops.embedded.postgres import EmbeddedPostgres, Places
from processors.adapters.postgres.migrations import migrate
from tests.support.databases import fresh_database


@asynccontextmanager
async def own_postgres() -> AsyncIterator[EmbeddedPostgres]:
    account = choose_account(Path(os.devnull))
    folder = Path(tempfile.mkdtemp(prefix="a44-own-postgres-"))
    await asyncio.to_thread(folder.chmod, 0o711)  # as root the server has another account, which must pass through
    places = Places(
        data=folder / "postgres",
        password=folder / "postgres.password",
        log=folder / "postgres.log",
        scratch=folder,
        keep=False,
    )
    server = EmbeddedPostgres(places, account)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def own_log(server: EmbeddedPostgres) -> AsyncIterator[str]:
    """Address of a migrated database there; the server runs again when the block ends."""
    async with fresh_database(server.dsn) as dsn:
        await migrate(dsn)
        yield dsn
