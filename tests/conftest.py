"""Fixtures of all suites: servers once per session, a database and a topic prefix of its own per test."""

import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.databases import fresh_database
from tests.support.migrated import migrated_template
from tests.support.servers import Servers, running_servers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks for a server is marked `kafka`, so that `-m "not kafka"` needs none."""
    for item in items:
        if "servers" in getattr(item, "fixturenames", ()):
            item.add_marker("kafka")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def servers() -> AsyncIterator[Servers]:
    """PostgreSQL and a broker, started when the first test asks."""
    async with running_servers() as running:
        yield running


@pytest.fixture(scope="session")
def postgres_dsn(servers: Servers) -> str:
    """Address of a role that may create databases and roles."""
    return servers.postgres_dsn


@pytest.fixture(scope="session")
def kafka_bootstrap(servers: Servers) -> str:
    return servers.kafka_bootstrap


@pytest_asyncio.fixture
async def database(postgres_dsn: str) -> AsyncIterator[str]:
    """Address of a fresh empty database."""
    async with fresh_database(postgres_dsn) as dsn:
        yield dsn


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def migrated_template_name(postgres_dsn: str) -> AsyncIterator[str]:
    async with migrated_template(postgres_dsn) as name:
        yield name


@pytest_asyncio.fixture
async def migrated_database(postgres_dsn: str, migrated_template_name: str) -> AsyncIterator[str]:
    """Address of a database with this version's schema and no rows."""
    async with fresh_database(postgres_dsn, migrated_template_name) as dsn:
        yield dsn


@pytest.fixture
def topic_prefix() -> str:
    """Put before each topic and group name: tests share one broker."""
    return f"t{secrets.token_hex(4)}."
