"""The local stack's parts can be killed, paused, doubled and given an environment of their own, one at a time."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
from confluent_kafka.admin import AdminClient, NewTopic

from ops.client import Client
from ops.local import LocalOptions, LocalStack
from ops.local.role_process import RoleProcess
from processors.adapters.postgres.scripts import query
from schemas.errors import Unavailable
from tests.support.servers import wished_broker
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(180)
ROLES = ("gateway", "gateway", "relay", "executor")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stack() -> AsyncIterator[LocalStack]:
    options = LocalOptions(
        kafka="apache" if wished_broker() == "apache" else "embedded",
        roles=ROLES,
        environment_of={"gateway-2": {"A44_OWNER": "second"}},
    )
    async with LocalStack(options) as running:
        yield running


def environment_of(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


async def whoami(url: str, token: str) -> str:
    with closing(Client(url, token, 5)) as client:
        document = await asyncio.to_thread(client.whoami)
        return str(document["project_id"])


@pytest.mark.asyncio(loop_scope="module")
async def test_a_role_named_twice_is_two_processes_and_either_answers(stack: LocalStack) -> None:
    first, second = stack.processes["gateway"], stack.processes["gateway-2"]
    assert list(stack.processes) == ["gateway", "gateway-2", "relay", "executor"]
    assert first.told["url"] == stack.url != second.told["url"]
    await first.kill()
    assert await whoami(second.told["url"], stack.token) == "dev"
    await first.start()
    assert await whoami(stack.url, stack.token) == "dev"


@pytest.mark.asyncio(loop_scope="module")
async def test_one_process_has_an_environment_of_its_own_and_one_life_more(stack: LocalStack) -> None:
    second = stack.processes["gateway-2"]
    assert environment_of(stack.processes["gateway"].pid)["A44_OWNER"] == "local-gateway"
    assert environment_of(second.pid)["A44_OWNER"] == "second"
    await second.kill()
    await second.start({"A44_OWNER": "third"})
    assert environment_of(second.pid)["A44_OWNER"] == "third"
    await second.kill()
    await second.start()
    assert environment_of(second.pid)["A44_OWNER"] == "second"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_paused_process_is_there_and_answers_nobody_until_it_goes_on(stack: LocalStack) -> None:
    first = stack.processes["gateway"]
    first.pause()
    with closing(Client(stack.url, stack.token, 0.5)) as client, pytest.raises(Unavailable):
        await asyncio.to_thread(client.whoami)
    assert first.is_running
    first.go_on()
    assert await whoami(stack.url, stack.token) == "dev"


@pytest.mark.asyncio(loop_scope="module")
async def test_step_hosts_are_the_children_of_an_executor(stack: LocalStack) -> None:
    executor = stack.processes["executor"]
    await until(lambda: len(executor.children()) >= 1, "a warm spare is there")
    victim = executor.children()[0]
    os.kill(victim, 9)
    await until(lambda: victim not in executor.children(), "the killed host is gone")
    assert executor.is_running


@pytest.mark.asyncio(loop_scope="module")
async def test_postgres_stopped_at_once_comes_back_with_what_was_committed(stack: LocalStack) -> None:
    await stack.servers.postgres.stop_immediately()
    with pytest.raises(psycopg.OperationalError):
        await query(stack.log_dsn, "select 1")
    await stack.servers.postgres.start()
    assert await query(stack.log_dsn, "select count(*) from automation.tokens") == [(1,)]
    assert "immediate shutdown" in (stack.folder / "logs" / "postgres.log").read_text()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_broker_can_lose_everything_and_be_back_on_its_port(stack: LocalStack) -> None:
    bootstrap = stack.kafka_bootstrap
    foreign = "kept.by.nobody"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic(foreign, 1)])[foreign].result, 20)
    assert foreign in (await asyncio.to_thread(admin.list_topics, timeout=20)).topics
    await stack.servers.broker.kill_immediately()
    await stack.servers.broker.start_empty()
    assert stack.kafka_bootstrap == bootstrap
    fresh = AdminClient({"bootstrap.servers": bootstrap})
    assert foreign not in (await asyncio.to_thread(fresh.list_topics, timeout=20)).topics


@pytest.mark.asyncio(loop_scope="module")
async def test_one_more_process_of_a_role_joins_while_the_stack_runs(stack: LocalStack) -> None:
    third = stack.add("gateway")
    await third.start()
    assert third.name == "gateway-3"
    assert await whoami(third.told["url"], stack.token) == "dev"
    await third.stop()
    assert not third.is_running


async def test_lines_of_a_role_are_read_from_a_place_on(tmp_path: Path) -> None:
    log = tmp_path / "role.log"
    log.write_text('{"event": "old"}\nTraceback\n{"event": "new"}\n{"event": "cut off')
    process = RoleProcess("relay", {}, log)
    assert [line["event"] for line in process.lines(17)] == ["new"]
    assert [line["event"] for line in process.lines()] == ["old", "new"]
