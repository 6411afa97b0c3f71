"""The registry's own client against a registry's answers: what is known, what is not, and what is only away."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from ops.embedded.ports import free_port
from processors.adapters.kafka.registry import SchemaRegistry
from processors.gateway.server import serve
from processors.ingest.ingest import Ingest
from processors.ports.catalog import CatalogSnapshot
from processors.ports.streams import Record
from processors.runtime.current_catalog import CurrentCatalog
from schemas.errors import Refused, Unavailable
from tests.conformance_of_ports.logs import MemoryLog
from tests.unit.schemas.test_confluent import NUMBER, framed, schema

BROKEN, REFERRING, LOCKED = 8, 9, 10


@pytest.fixture
def registered() -> Iterator[Callable[[str], SchemaRegistry]]:
    made: list[SchemaRegistry] = []

    def at(url: str) -> SchemaRegistry:
        made.append(SchemaRegistry(url))
        return made[-1]

    yield at
    for one in made:
        one.close()


class Registry:
    """Answers as the REST interface of a registry does."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[int, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        self.asked.append((number, request.headers.get("Authorization", "")))
        if number == NUMBER:
            return web.json_response({"schema": json.dumps(schema())})
        if number == BROKEN:
            return web.json_response({"schema": "{", "schemaType": "AVRO"})
        if number == REFERRING:
            told = {"name": "a", "subject": "a", "version": 1}
            return web.json_response({"schema": json.dumps(schema()), "references": [told]})
        if number == LOCKED:
            return web.json_response({"error_code": 40101, "message": "Unauthorized"}, status=401)
        return web.json_response({"error_code": 40403, "message": "Schema not found"}, status=404)


@asynccontextmanager
async def registry_at_work() -> AsyncIterator[Registry]:
    answers, app = Registry(), web.Application()
    app.router.add_get("/schemas/ids/{number}", answers.answer)
    site = await serve(app, "127.0.0.1", 0)
    answers.url = site.url
    yield answers
    await site.stop()


@pytest_asyncio.fixture
async def registry() -> AsyncIterator[Registry]:
    async with registry_at_work() as answers:
        yield answers


async def test_a_schema_is_asked_for_once_and_reads_records(
    registry: Registry, registered: Callable[[str], SchemaRegistry]
) -> None:
    schemas = registered(registry.url.replace("http://", "http://ana:s3cret@"))
    for _ in range(3):
        assert (await schemas.writer(NUMBER)).decode(framed(schema(), data="1")).data == "1"
    assert len(registry.asked) == 1
    assert registry.asked[0][1].startswith("Basic ")


async def test_a_number_that_is_not_known_is_asked_for_again_and_what_cannot_be_used_is_not(
    registry: Registry, registered: Callable[[str], SchemaRegistry]
) -> None:
    schemas = registered(registry.url)
    for number in (99, 99, BROKEN, BROKEN, REFERRING, REFERRING):
        with pytest.raises(Refused) as caught:
            await schemas.writer(number)
        assert caught.value.code == "E_SCHEMA_UNKNOWN"
    assert [number for number, _ in registry.asked] == [99, 99, BROKEN, REFERRING]


async def test_a_registry_that_is_away_or_lets_nobody_in_is_no_fault_of_the_record(
    registry: Registry, registered: Callable[[str], SchemaRegistry]
) -> None:
    for url, number in ((registry.url, LOCKED), (f"http://u:secret@127.0.0.1:{free_port()}", NUMBER)):
        with pytest.raises(Unavailable) as caught:
            await registered(url).writer(number)
        assert caught.value.code == "E_SCHEMA_REGISTRY_UNAVAILABLE"
        assert "secret" not in caught.value.message


def ingest_with(log: Any, schemas: SchemaRegistry) -> Ingest:
    class Published:
        async def version(self) -> int:
            return 1

        async def snapshot(self) -> Any:
            return CatalogSnapshot(1, {}, {}, {}, {}, {}, {})

    class Silent:
        def granted(self, grants: object) -> None: ...

    return Ingest(log, CurrentCatalog(Published()), Silent(), schemas=schemas)  # type: ignore[arg-type]


async def test_ingest_reads_framed_records_and_waits_for_a_registry_that_is_away(
    registry: Registry, registered: Callable[[str], SchemaRegistry]
) -> None:
    memory = MemoryLog()
    log = await memory.ingest_log()
    await log.positions("events", "topic-1", [0])
    values = [framed(schema(), data="1"), None, b"\0\0\0\0\x63?", b"\0\0"]
    poll = [Record("events", 0, at, b"p", value, (), 1) for at, value in enumerate(values)]
    later = await ingest_with(log, registered(f"http://127.0.0.1:{free_port()}"))(poll)
    tables = memory.database.tables
    assert {partition: one.offset for partition, one in later.items()} == {0: 0}
    assert (tables.inbox, tables.dead_letters, tables.progress) == ({}, {}, {})
    await asyncio.wait_for(ingest_with(log, registered(registry.url))(poll), 20)
    assert len(tables.inbox) == 1
    codes = {one.offset: one.error_code for one in tables.dead_letters.values()}
    assert codes == {1: "E_TOMBSTONE", 2: "E_SCHEMA_UNKNOWN", 3: "E_ENVELOPE_INVALID"}
