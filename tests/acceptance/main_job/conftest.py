"""The whole service with short leases, on the broker that the suite runs on, once for all tests that ask for it: each
brings workflows of its own, and a role that one has killed is started again before the next.
"""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio

from ops.client import Client
from ops.local import LocalOptions, LocalStack

BrokerKind = Literal["embedded", "apache"]


@pytest.fixture(scope="session")
def broker_kind() -> BrokerKind:
    return "apache" if os.environ.get("A44_TEST_BROKER") == "apache" else "embedded"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def short_leases(broker_kind: BrokerKind) -> AsyncIterator[LocalStack]:
    environment = {"A44_LEASE_SECONDS": "3"}
    async with LocalStack(LocalOptions(kafka=broker_kind, environment=environment)) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def stack(short_leases: LocalStack) -> AsyncIterator[LocalStack]:
    yield short_leases
    for process in short_leases.processes.values():
        if not process.is_running:
            await process.start()


@pytest.fixture
def client(stack: LocalStack) -> Iterator[Client]:
    with closing(Client(stack.url, stack.token)) as opened:
        yield opened


@pytest.fixture
def passable(tmp_path: Path) -> Path:
    """A folder that an unprivileged account may pass and write to, as step hosts and servers do under root."""
    top = next(place for place in tmp_path.parents if place.name.startswith("pytest-of-"))
    for place in (tmp_path, *tmp_path.parents):
        if place.is_relative_to(top):
            place.chmod(place.stat().st_mode | 0o011)
    tmp_path.chmod(0o777)
    return tmp_path


@pytest.fixture
def flows(tmp_path: Path) -> Path:
    folder = tmp_path / "flows"
    folder.mkdir()
    return folder
