"""Every role ends within ten seconds of SIGTERM, whatever it does and whoever is away; a second one ends it at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ops.client import Client
from ops.composition.process import SECOND_SIGNAL_EXIT
from ops.local import LocalStack
from ops.settings import ROLES
from processors.adapters.postgres.scripts import query
from tests.acceptance.stopping.flows import in_good_order, stopped
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

GROUPS = {"ingest": "a44.ingest", "executor": "a44.executors"}


async def members(stack: LocalStack, group: str) -> int:
    client = AdminClient({"bootstrap.servers": stack.kafka_bootstrap})
    return len((await asyncio.wrap_future(client.describe_consumer_groups([group])[group])).members)


@asynccontextmanager
async def away(stack: LocalStack, server: str) -> AsyncIterator[None]:
    part = stack.servers.postgres if server == "postgres" else stack.servers.broker
    await part.stop()
    try:
        yield
    finally:
        await part.start()


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_that_is_idle_ends_in_good_order_and_leaves_its_group(
    stack: LocalStack, role: str, broker_kind: str
) -> None:
    process = stack.processes[role]
    if role in GROUPS and broker_kind == "apache":  # the embedded broker shows no members
        assert await members(stack, GROUPS[role]) == 1
    ended = await stopped(process)
    if role in GROUPS and broker_kind == "apache":
        assert await members(stack, GROUPS[role]) == 0
    await process.start()
    assert in_good_order(ended), ended


@pytest.mark.parametrize("server", ["broker", "postgres"])
async def test_roles_end_in_time_though_a_server_is_away(stack: LocalStack, server: str) -> None:
    noticed = {"broker": "kafka_client", "postgres": "listen_lost"}
    async with away(stack, server):
        await until(lambda: said(stack, noticed[server]), "it is noticed that a server is away", 60)
        ended = await asyncio.gather(*map(stopped, stack.processes.values()))
    await asyncio.gather(*(process.start() for process in stack.processes.values()))
    assert in_good_order(*ended), ended


def said(stack: LocalStack, event: str) -> bool:
    return any(line["event"] == event for process in stack.processes.values() for line in process.lines())


@pytest.mark.timeout(300)
async def test_d03_members_that_are_told_in_the_middle_of_a_rebalance_end_in_time(stack: LocalStack) -> None:
    first, second = stack.processes["ingest"], stack.add("ingest")
    await second.start()
    # The goodbye of the one makes the group share out anew, and in the middle of that the other says goodbye.
    ended = await asyncio.gather(stopped(second), stopped(first))
    del stack.processes[second.name]
    await first.start()
    assert in_good_order(*ended), ended


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_an_executor_gives_a_long_step_back_in_time_and_no_crash_is_counted(
    stack: LocalStack, client: Client, passable: Path, kind: str
) -> None:
    run_id = await begun(client, passable, f"wf_long_{kind}")
    executor = stack.processes["executor"]
    ended = await stopped(executor)
    rows = await query(stack.log_dsn, "select run_id, state, crashes from automation.live_runs")
    (passable / "release").touch()
    await executor.start()
    await until_succeeded(client, run_id)
    assert in_good_order(ended), ended
    assert rows == [(run_id, "granted", 0)]


async def test_a_second_signal_ends_an_executor_at_once_and_its_hosts_with_it(
    stack: LocalStack, client: Client, passable: Path
) -> None:
    run_id = await begun(client, passable, "wf_long_sync")
    executor = stack.processes["executor"]
    hosts = executor.children()
    assert hosts
    ended = await stopped(executor, twice=True)
    await until(lambda: not any(is_there(pid) for pid in hosts), "its step hosts are gone too", 10)
    (passable / "release").touch()
    await executor.start()
    await until_succeeded(client, run_id)
    assert (ended.code, ended.seconds) == (SECOND_SIGNAL_EXIT, None)


async def begun(client: Client, folder: Path, workflow: str) -> str:
    """A run that is in the middle of a step."""
    (folder / "release").unlink(missing_ok=True)
    made = await asyncio.to_thread(client.run, workflow, "{}", f"{workflow}-{len(held(folder))}")
    run_id: str = made.document["run_id"]
    await until(lambda: run_id in held(folder), "the step is being run", 40)
    return run_id


def held(folder: Path) -> list[str]:
    ledger = folder / "held"
    return ledger.read_text().split() if ledger.exists() else []


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def until_succeeded(client: Client, run_id: str) -> None:
    async def has() -> bool:
        return bool((await asyncio.to_thread(client.show, run_id)).document["state"] == "succeeded")

    await until(has, "the run goes on and succeeds", 60)
