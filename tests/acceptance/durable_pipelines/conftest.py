"""One stack for all claims; a role that a test has killed is started again before the next."""

import os
from collections.abc import AsyncIterator
from contextlib import closing

import pytest
import pytest_asyncio

from ops.client import Client
from ops.embedded.stack import BrokerKind
from ops.local import LocalOptions, LocalStack
from tests.acceptance.durable_pipelines.relayops import (
    PIPELINE,
    QUEUES,
    RelayOps,
    ReviewBoard,
    Tenant,
    is_unprivileged_reachable,
)

LEASE = {"A44_LEASE_SECONDS": "3"}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RelayOps]:
    folder = tmp_path_factory.mktemp("relayops")
    is_unprivileged_reachable(folder)
    ledger = folder / "ledger.jsonl"
    ledger.touch()
    ledger.chmod(0o666)
    kafka: BrokerKind = "apache" if os.environ.get("A44_TEST_BROKER") == "apache" else "embedded"
    async with LocalStack(LocalOptions(project="relayops", kafka=kafka, environment=LEASE)) as stack:
        with closing(Client(stack.url, stack.token)) as client, closing(ReviewBoard(stack.project_dsn)) as board:
            client.publish({"document.py": PIPELINE.format(ledger=str(ledger)), "queues.yaml": QUEUES})
            yield RelayOps(stack, Tenant("relayops", client), board, ledger)


@pytest_asyncio.fixture(loop_scope="session")
async def relayops(running: RelayOps) -> AsyncIterator[RelayOps]:
    yield running
    for process in running.stack.processes.values():
        if not process.is_running:
            await process.start()
