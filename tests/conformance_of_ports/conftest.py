"""Each behaviour is asked of every adapter of its port: in memory, on Postgres, on Kafka."""

from collections.abc import AsyncIterator
from typing import cast

import pytest
import pytest_asyncio

from tests.conformance_of_ports.logs import Log, MemoryLog, postgres_log
from tests.conformance_of_ports.topics import Streams, kafka_streams, memory_streams
from tests.integration.log.lab import empty, open_lab


@pytest_asyncio.fixture
async def memory_log_made() -> Log:
    return MemoryLog()


@pytest_asyncio.fixture
async def postgres_log_made(migrated_database: str) -> AsyncIterator[Log]:
    await empty(migrated_database)
    async with open_lab(migrated_database) as lab, postgres_log(lab) as made:
        yield made


@pytest_asyncio.fixture
async def memory_streams_made() -> Streams:
    return memory_streams()


@pytest_asyncio.fixture
async def kafka_streams_made(kafka_bootstrap: str, topic_prefix: str) -> AsyncIterator[Streams]:
    async with kafka_streams(kafka_bootstrap, topic_prefix) as made:
        yield made


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.kafka)])
def log(request: pytest.FixtureRequest) -> Log:
    return cast("Log", request.getfixturevalue(f"{request.param}_log_made"))


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def streams(request: pytest.FixtureRequest) -> Streams:
    return cast("Streams", request.getfixturevalue(f"{request.param}_streams_made"))
