"""The embedded stack keeps its promises: loopback only, one folder, durable, gone with its starter."""

import asyncio
import gc
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from ops.embedded import EmbeddedStack
from ops.embedded.ports import answers_kafka
from ops.embedded.process import Kept, Plan
from schemas.errors import Refused
from tests.support.waiting import until

ON_LINUX = sys.platform.startswith("linux")
AS_ROOT = os.geteuid() == 0

STARTER = """
import asyncio, json, sys
from ops.embedded import EmbeddedStack

async def main():
    async with EmbeddedStack() as stack:
        pids = [stack.postgres._kept.pid, stack.broker._kept.pid]
        print(json.dumps({"folder": str(stack.folder), "pids": pids}), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def temporary_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of its own, which root's servers may pass: pytest's own is closed to them."""
    with tempfile.TemporaryDirectory(prefix="a44-test-") as name:
        place = Path(name)
        place.chmod(0o711)
        monkeypatch.setattr(tempfile, "tempdir", name)
        monkeypatch.setenv("TMPDIR", name)
        yield place


def listening(port: int) -> set[str]:
    """Addresses on which something listens at this port, as the kernel writes them."""
    rows = [row.split() for table in ("tcp", "tcp6") for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    local = [row[1].rpartition(":") for row in rows if row[3] == "0A"]
    return {address for address, _, number in local if int(number, 16) == port}


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # An orphan that nobody has collected yet is gone all the same.
    return ON_LINUX and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def content(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def fetch(dsn: str, statement: str) -> object:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        cursor = await connection.execute(statement.encode())
        row = await cursor.fetchone() if cursor.description else None
        return row[0] if row else None


async def test_both_servers_answer_and_leave_nothing_behind(temporary_place: Path) -> None:
    seen: list[tuple[str, str]] = []
    async with EmbeddedStack(on_progress=lambda part, state: seen.append((part, state))) as stack:
        assert await fetch(stack.postgres_dsn, "show server_version_num") >= "180000"  # type: ignore[operator]
        assert await answers_kafka(stack.broker.port)
        assert stack.folder.parent == temporary_place
        pids = [stack.postgres._kept.pid, stack.broker._kept.pid]  # type: ignore[union-attr, attr-defined]
    assert content(temporary_place) == []
    assert all(is_gone(pid) for pid in pids)
    assert set(seen) == {
        (part, state) for part in ("postgres", "broker") for state in ("starting", "ready", "stopping", "stopped")
    }


@pytest.mark.skipif(not ON_LINUX, reason="reads the kernel's table of listeners")
async def test_both_servers_listen_on_the_loopback_address_alone(temporary_place: Path) -> None:
    async with EmbeddedStack() as stack:
        for port in (stack.postgres.port, stack.broker.port):
            assert listening(port) == {"0100007F"}


async def test_a_commit_is_on_disk_and_a_password_is_asked_for(temporary_place: Path) -> None:
    async with EmbeddedStack() as stack:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert await fetch(stack.postgres_dsn, f"show {setting}") == "on"
        wrong = stack.postgres_dsn.replace(stack.postgres._password, "guess")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            await fetch(wrong, "select 1")


async def test_a_database_has_one_owner_and_may_be_asked_for_again(temporary_place: Path) -> None:
    async with EmbeddedStack() as stack:
        await stack.create_database('shop\'s "own"', "first")
        dsn = await stack.create_database('shop\'s "own"', "it's /second\\")
        assert await fetch(dsn, "select current_user::text") == 'shop\'s "own"'
        other = await stack.create_database("other", "secret")
        crossing = other.rpartition("/")[0] + "/" + dsn.rpartition("/")[2]
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            await fetch(crossing, "select 1")


async def test_a_crash_loses_nothing_that_was_committed(temporary_place: Path) -> None:
    async with EmbeddedStack() as stack:
        port = stack.postgres.port
        await fetch(stack.postgres_dsn, "create table kept as select 42 as answer")
        await stack.postgres.kill_immediately()
        await stack.postgres.start()
        assert stack.postgres.port == port
        assert await fetch(stack.postgres_dsn, "select answer from kept") == 42


async def test_the_broker_comes_back_on_the_same_port_after_a_crash(temporary_place: Path) -> None:
    async with EmbeddedStack() as stack:
        before = stack.kafka_bootstrap
        watching = asyncio.create_task(stack.ended())
        os.kill(stack.broker._kept.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        assert "ended with code 137" in await asyncio.wait_for(watching, 10)
        await stack.broker.start()
        assert stack.kafka_bootstrap == before
        assert await answers_kafka(stack.broker.port)


async def test_persist_keeps_the_database_and_its_password(temporary_place: Path) -> None:
    folder = temporary_place / "kept"
    async with EmbeddedStack(folder) as stack:
        first = stack.postgres_dsn
        await fetch(first, "create table kept as select 7 as answer")
    assert (folder / "postgres.password").stat().st_mode & 0o777 == 0o600
    assert content(temporary_place) == [folder]
    async with EmbeddedStack(folder, postgres_port=stack.postgres.port) as again:
        assert again.postgres_dsn == first
        assert await fetch(again.postgres_dsn, "select answer from kept") == 7


async def test_a_second_stack_on_the_same_folder_is_refused(temporary_place: Path) -> None:
    folder = temporary_place / "kept"
    async with EmbeddedStack(folder) as stack:
        with pytest.raises(Refused, match="Another stack is using"):
            async with EmbeddedStack(folder):
                pass
        assert await fetch(stack.postgres_dsn, "select 1") == 1


async def test_a_port_that_is_taken_is_named(temporary_place: Path) -> None:
    async with EmbeddedStack() as stack:
        with pytest.raises(Refused, match=f"Port {stack.broker.port} on 127.0.0.1 cannot be used"):
            async with EmbeddedStack(broker_port=stack.broker.port):
                pass


async def test_data_of_another_major_version_is_refused(temporary_place: Path) -> None:
    data = temporary_place / "kept" / "postgres"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("17\n")
    with pytest.raises(Refused, match="was made by PostgreSQL 17"):
        async with EmbeddedStack(data.parent):
            pass


async def test_everything_is_gone_after_the_starter_was_killed(temporary_place: Path) -> None:
    starter = await asyncio.create_subprocess_exec(sys.executable, "-c", STARTER, stdout=asyncio.subprocess.PIPE)
    assert starter.stdout is not None
    told = json.loads(await starter.stdout.readline())
    starter.kill()
    await starter.wait()
    await until(lambda: all(is_gone(pid) for pid in told["pids"]), "the servers end")
    await until(lambda: not Path(told["folder"]).exists(), "the temporary folder goes")


@pytest.mark.skipif(not AS_ROOT, reason="only root's servers run under another account")
async def test_as_root_the_programs_are_copied_from_a_folder_that_others_cannot_enter(
    temporary_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ops.embedded import postgres  # noqa: PLC0415  the module, to point it to another installation

    closed = temporary_place / "closed"
    closed.mkdir(mode=0o700)
    package = postgres.installed_binaries().parents[1]
    for part in (package.name, f"{package.name}.libs"):
        (closed / part).symlink_to(package.with_name(part))
    monkeypatch.setattr(postgres, "installed_binaries", lambda: closed / package.name / "pginstall" / "bin")
    async with EmbeddedStack() as stack:
        assert stack.postgres._binaries == stack.folder / "programs" / package.name / "pginstall" / "bin"
        assert await fetch(stack.postgres_dsn, "select 1") == 1
    assert closed.stat().st_mode & 0o777 == 0o700


async def test_a_folder_to_persist_in_is_made_with_its_parents_whatever_the_umask(temporary_place: Path) -> None:
    before = os.umask(0o077)
    try:
        async with EmbeddedStack(temporary_place / "deep" / "kept") as stack:
            assert await fetch(stack.postgres_dsn, "select 1") == 1
    finally:
        os.umask(before)


async def test_a_folder_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(Refused, match=r"cannot be (made|written)|not a folder"):
        async with EmbeddedStack(Path("/proc/kept")):
            pass


@pytest.mark.skipif(not AS_ROOT, reason="only root's servers run under another account")
async def test_as_root_a_closed_folder_to_persist_in_is_refused_and_left_alone(temporary_place: Path) -> None:
    closed = temporary_place / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(Refused, match="cannot be entered by the unprivileged account"):
        async with EmbeddedStack(closed / "kept"):
            pass
    assert content(closed) == []
    assert closed.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("seconds", [0.001, 0.005, 0.01, 0.02, 0.04, 0.08])
async def test_a_start_that_is_cancelled_leaves_no_child(temporary_place: Path, seconds: float) -> None:
    plan = Plan("a child", ("sleep", "600"), temporary_place, temporary_place / "child.log")
    with suppress(TimeoutError):
        kept = await asyncio.wait_for(Kept.start(plan), seconds)
        await kept.stop()
    gc.collect()  # a forgotten child would warn here, and warnings are errors
    assert working_in(temporary_place) == []


def working_in(folder: Path) -> list[Path]:
    """Processes whose working folder this is."""
    return [path for path in Path("/proc").glob("[0-9]*/cwd") if _leads_to(path, folder)]


def _leads_to(path: Path, folder: Path) -> bool:
    try:
        return path.readlink() == folder
    except OSError:
        return False
