"""The disk of Postgres is full: doors answer 503, nothing is half applied, and all goes on once there is room.

The log lies on a small file system of its own, which the test fills. The server's own log of changes (WAL) lies
elsewhere: without room for that, Postgres stops itself, which is a restart.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql

from ops.embedded.account import choose_account
from processors.adapters.postgres.journal import PostgresJournal
from processors.adapters.postgres.migrations import migrate
from processors.ports.journal import Batch
from schemas.errors import Unavailable
from tests.integration.faults.gateways import open_gateway
from tests.integration.faults.own_postgres import own_postgres
from tests.integration.gateway.conftest import Answer, Gateway
from tests.integration.log.lab import DEAD_LETTERS, end_of, entry_of, open_lab
from tests.support.databases import with_database
from tests.support.waiting import until

pytestmark = [pytest.mark.timeout(240), pytest.mark.kafka]
LARGE = "x" * 200_000


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """To the last byte that a file may take."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                try:
                    while file.write(b"\0" * size) == size:
                        pass
                except OSError as exc:
                    assert exc.errno == 28, exc  # noqa: PT017  no space left on the device is what was wanted

    def clear(self) -> None:
        self._ballast.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    folder = tmp_path_factory.mktemp("disk")
    account = choose_account(Path(os.devnull))
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or umount is None:
        pytest.skip("a small file system takes the right to mount one")
    options = f"size=64m,mode=0700,uid={account.uid}"
    mounted = subprocess.run([mount, "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False)
    if mounted.returncode != 0:
        pytest.skip("this container may not mount")
    try:
        top = next(place for place in folder.parents if place.name.startswith("pytest-of-"))
        for passable in folder.parents:
            if passable.is_relative_to(top):
                passable.chmod(0o711)
        yield SmallDisk(folder)
    finally:
        subprocess.run([umount, "--lazy", str(folder)], check=True)


@pytest_asyncio.fixture
async def log(disk: SmallDisk) -> AsyncIterator[str]:
    """Address of a migrated log whose tables lie on the small disk."""
    async with own_postgres() as server:
        async with await psycopg.AsyncConnection.connect(server.dsn, autocommit=True) as conn:
            place = sql.Literal(str(disk.folder))
            await conn.execute(sql.SQL("create tablespace small location {}").format(place))
            await conn.execute("create database tight tablespace small")
        dsn = with_database(server.dsn, "tight")
        await migrate(dsn)
        yield dsn


async def answers_of(gateway: Gateway, keys: list[str]) -> dict[str, Answer]:
    answers = await asyncio.gather(*(gateway.run(key, input={"text": key + LARGE}) for key in keys))
    return dict(zip(keys, answers, strict=True))


async def test_doors_refuse_while_the_disk_is_full_and_go_on_by_themselves(disk: SmallDisk, log: str) -> None:
    async with open_gateway(log, patience=5) as gateway:
        assert (await gateway.run("before")).status == 202
        disk.fill()
        told: dict[str, Answer] = {}
        for turn in range(50):  # pages that were reserved earlier may take some
            told |= await answers_of(gateway, [f"order-{turn}-{n}" for n in range(5)])
            if any(answer.status == 503 for answer in told.values()):
                break
        refused = {key for key, answer in told.items() if answer.status == 503}
        assert refused
        assert {answer.status for answer in told.values()} <= {202, 503}
        assert {(told[key].code, told[key].headers["Retry-After"]) for key in refused} == {("E_UNAVAILABLE", "1")}
        await _nothing_is_half_applied(gateway, {"before", *told} - refused)
        assert (await gateway.call("GET", "/readyz")).status == 200  # what is there can be read

        disk.clear()

        async def is_back() -> bool:
            return (await gateway.run("after")).status in {200, 202}

        await until(is_back, "the doors to accept again", 60)
        again = await answers_of(gateway, list(told))
        assert {key for key, answer in again.items() if answer.status == 202} == refused
        assert {again[key].body["run_id"] for key in told.keys() - refused} == {
            told[key].body["run_id"] for key in told.keys() - refused
        }
        await _nothing_is_half_applied(gateway, {"before", "after", *told})


async def _nothing_is_half_applied(gateway: Gateway, accepted: set[str]) -> None:
    async def found(query: str) -> list[Any]:
        return [next(iter(row.values())) for row in await gateway.rows(query)]

    assert set(await found("select idempotency_key from automation.idempotency_keys")) == accepted
    assert sorted(await found("select idempotency_key from automation.live_runs")) == sorted(accepted)
    assert len(await found("select event_id from automation.inbox")) == len(accepted)


async def test_a_journal_keeps_its_runs_over_a_full_disk(disk: SmallDisk, log: str) -> None:
    """The batch is refused as a whole, the session stays, and the same batch is committed when there is room."""
    async with open_lab(log) as lab:
        await lab.queue()
        await lab.make([lab.run() for _ in range(40)])
        journal = PostgresJournal(log, "executor-1", 120.0, DEAD_LETTERS)
        await journal.open()
        claims = await lab.claim(journal)
        value = f'"{LARGE}"'
        batch = Batch(
            entries=[entry_of(claim, 1, value) for claim in claims] + [entry_of(claim, 2, value) for claim in claims],
            ends=[end_of(claim) for claim in claims],
        )
        disk.fill()
        with pytest.raises(Unavailable, match="53100"):
            await journal.commit(batch)
        assert await lab.value("select count(*) from automation.step_attempts") == 0
        assert await lab.states() == {"running": 40}
        disk.clear()
        await journal.commit(batch)
        assert await lab.states() == {"succeeded": 40}
        assert await lab.value("select count(*) from automation.step_attempts") == 80
        assert await lab.value("select epoch from automation.sessions") == 1
        await journal.aclose()
