"""A real fleet of hosts, under a scripted executor or under a real one."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from processors.executor.hosts import HostSettings, StepHosts
from tests.integration.executor.works import Works
from tests.integration.hosts.at_work import AtWork
from tests.integration.hosts.scripted import Scripted, Shelf, quick
from tests.integration.log.lab import empty, open_lab
from tests.support.databases import fresh_database


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest_asyncio.fixture
async def with_settings(shelf: Shelf) -> AsyncIterator[Callable[[HostSettings], Scripted]]:
    """Make a fleet with these settings; it is closed at the end."""
    made: list[Scripted] = []

    def make(settings: HostSettings) -> Scripted:
        scripted = Scripted()
        scripted.hosts = StepHosts(scripted, shelf, settings, scripted.measures)
        made.append(scripted)
        return scripted

    yield make
    for scripted in made:
        await scripted.hosts.aclose()


@pytest_asyncio.fixture
async def scripted(with_settings: Callable[[HostSettings], Scripted]) -> Scripted:
    return with_settings(quick())


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def hosts_database(postgres_dsn: str, migrated_template_name: str) -> AsyncIterator[str]:
    async with fresh_database(postgres_dsn, migrated_template_name) as dsn:
        yield dsn


@pytest_asyncio.fixture
async def at_work(hosts_database: str, tmp_path: Path) -> AsyncIterator[AtWork]:
    await empty(hosts_database)
    async with open_lab(hosts_database) as lab:
        works = Works(lab)
        yield AtWork(works, tmp_path)
        await works.aclose()
