from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.yaml_stage import Stage


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.bodies.aclose()
