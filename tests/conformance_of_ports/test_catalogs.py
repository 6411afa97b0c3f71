"""What a publication puts in force, as everybody who decides by it sees it: in memory and on Postgres."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import pytest
import pytest_asyncio

from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.ports.catalog import CatalogSnapshot
from schemas.errors import Refused
from tests.integration.log.lab import empty
from tests.simulation.memory.catalog import MemoryCatalog

ACME, SHOP = "acme", "shop"


class Published(Protocol):
    async def publish(self, project_id: str, files: Mapping[str, str], *, dev: bool, actor: str) -> Any: ...

    async def snapshot(self) -> CatalogSnapshot: ...


@pytest_asyncio.fixture
async def memory_catalog() -> Published:
    return MemoryCatalog()


@pytest_asyncio.fixture
async def postgres_catalog(migrated_database: str) -> AsyncIterator[Published]:
    await empty(migrated_database)
    async with open_pool(migrated_database, "catalog") as pool:
        yield PostgresCatalog(pool)


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.kafka)])
def catalog(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{request.param}_catalog")


def types(**schemas: str) -> dict[str, str]:
    items = "".join(f"  - {{type: {name}, schema: {schema}}}\n" for name, schema in schemas.items())
    return {"events.yaml": f"events:\n{items}"}


async def publish(catalog: Published, project: str, files: Mapping[str, str]) -> list[tuple[str, str, str | None]]:
    made = await catalog.publish(project, files, dev=False, actor="tok_1")
    return [(one.id, one.change, one.version) for one in made.published]


def seen(snapshot: CatalogSnapshot) -> dict[tuple[str, str], int]:
    return {name: one.version for name, one in snapshot.event_types.items()}


async def test_each_project_has_its_own_event_types(catalog: Published) -> None:
    await publish(catalog, ACME, types(paid="true", lost="false"))
    await publish(catalog, SHOP, types(paid="{type: object}"))
    snapshot = await catalog.snapshot()
    assert seen(snapshot) == {(ACME, "paid"): 1, (ACME, "lost"): 1, (SHOP, "paid"): 1}
    assert snapshot.event_types[ACME, "paid"].schema is None
    schema = snapshot.event_types[SHOP, "paid"].schema
    assert schema is not None
    assert schema.mismatch([], 2) is not None


async def test_the_newest_version_is_in_force_and_others_keep_theirs(catalog: Published) -> None:
    assert await publish(catalog, ACME, types(paid="{maximum: 1}", lost="false")) == [
        ("paid", "created", "1"),
        ("lost", "created", "1"),
    ]
    before = await catalog.snapshot()
    assert await publish(catalog, ACME, types(paid="{maximum: 2}")) == [("paid", "updated", "2")]
    assert await publish(catalog, ACME, types(paid="{maximum: 2}")) == [("paid", "unchanged", "2")]
    after = await catalog.snapshot()
    assert seen(before) == {(ACME, "paid"): 1, (ACME, "lost"): 1}, "a snapshot never changes"
    assert seen(after) == {(ACME, "paid"): 2, (ACME, "lost"): 1}
    assert after.event_types[ACME, "lost"] is before.event_types[ACME, "lost"], "what was compiled is kept"
    schema = after.event_types[ACME, "paid"].schema
    assert schema is not None
    assert [schema.mismatch(value, 1) is None for value in (2, 3)] == [True, False]


async def test_a_version_that_takes_less_changes_nothing(catalog: Published) -> None:
    await publish(catalog, ACME, types(paid="{maximum: 2}"))
    with pytest.raises(Refused) as raised:
        await publish(catalog, ACME, types(lost="true", paid="{maximum: 1}"))
    assert raised.value.code == "E_SCHEMA_INCOMPATIBLE"
    assert seen(await catalog.snapshot()) == {(ACME, "paid"): 1}
