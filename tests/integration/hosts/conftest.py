"""A real fleet of hosts under a scripted executor."""

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from processors.executor.hosts import HostSettings, StepHosts
from tests.integration.hosts.scripted import Scripted, Shelf, quick


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
