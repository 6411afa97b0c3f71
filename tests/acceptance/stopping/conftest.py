"""The whole service on the broker that the suite runs on, once for each module: every test puts back what it stops."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio

from ops.client import Client
from ops.local import LocalOptions, LocalStack
from tests.acceptance.stopping.flows import publish_flows

BrokerKind = Literal["embedded", "apache"]


@pytest.fixture(scope="module")
def broker_kind() -> BrokerKind:
    return "apache" if os.environ.get("A44_TEST_BROKER") == "apache" else "embedded"


@pytest.fixture(scope="module")
def passable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that step hosts may pass and write to also under an account of their own."""
    folder = tmp_path_factory.mktemp("stopping")
    for place in (folder, folder.parent, folder.parent.parent):
        place.chmod(place.stat().st_mode | 0o011)
    folder.chmod(0o777)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(broker_kind: BrokerKind, passable: Path) -> AsyncIterator[LocalStack]:
    async with LocalStack(LocalOptions(kafka=broker_kind, environment={"A44_LEASE_SECONDS": "6"})) as running:
        with closing(Client(running.url, running.token)) as client:
            await publish_flows(client, passable)
        yield running


@pytest.fixture
def client(stack: LocalStack) -> Iterator[Client]:
    with closing(Client(stack.url, stack.token)) as opened:
        yield opened
