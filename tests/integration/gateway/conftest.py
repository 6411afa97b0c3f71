"""A real gateway on a real Postgres, and a caller that signs as senders do."""

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import psycopg
import pytest
from aiohttp import web
from psycopg.rows import dict_row

from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.dead_letters import PostgresDeadLetters
from processors.adapters.postgres.door import MOST_QUEUED, PostgresDoor
from processors.adapters.postgres.projects import PostgresProjects
from processors.adapters.postgres.redrives import PostgresRedrives
from processors.adapters.postgres.run_queries import PostgresRunQueries
from processors.adapters.postgres.taken_events import PostgresTakenEvents
from processors.adapters.postgres.tokens import PostgresTokens
from processors.adapters.postgres.wakeups import Notifier
from processors.gateway.app import build_app
from processors.gateway.limits import Limits
from processors.gateway.server import serve
from processors.ports.measures import Measures
from processors.ports.secrets import Secrets
from processors.ports.storage import Storage

PROJECT = "pj_shop"
MASTER_KEY = bytes(range(32))

WORKFLOW = """
name: invoice-settle
version: 1
trigger:
  event: billing.invoice.finalized
  webhook: {id: trg_settle}
steps:
  - id: pause
    uses: sleep
    duration: 1s
"""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def code(self) -> str:
        return str(self.body["code"])


class Gateway:
    """The doors as callers see them, and the database behind."""

    app: web.Application
    door: PostgresDoor
    measures: Measures

    def __init__(self, url: str, dsn: str, session: aiohttp.ClientSession, token: str, tokens: PostgresTokens) -> None:
        self.url = url
        self.dsn = dsn
        self.session = session
        self.token = token
        self.tokens = tokens

    async def call(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        data: Any = None,
    ) -> Answer:
        sent = {"Authorization": f"Bearer {token or self.token}", **(headers or {})}
        async with self.session.request(method, self.url + path, headers=sent, json=json, data=data) as response:
            body = await response.json(content_type=None)
            assert "A44-Request-Id" in response.headers
            return Answer(response.status, response.headers, body)

    async def publish(self, files: Mapping[str, str], *, dev: bool = False, token: str | None = None) -> Answer:
        return await self.call("POST", "/v1/automation/publish", json={"files": files, "dev": dev}, token=token)

    async def hook(
        self,
        secret: str,
        body: bytes,
        *,
        trigger: str = "trg_settle",
        project: str = PROJECT,
        key: str | None = None,
        timestamp: str | None = None,
        signature: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        stamp = str(int(time.time())) if timestamp is None else timestamp
        signed = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        sent = {
            "Content-Type": "application/json",
            "A44-Timestamp": stamp,
            "A44-Signature": signed if signature is None else signature,
            **({} if key is None else {"A44-Idempotency-Key": key}),
            **(headers or {}),
        }
        async with self.session.post(f"{self.url}/v1/{project}/{trigger}", data=body, headers=sent) as response:
            return Answer(response.status, response.headers, await response.json(content_type=None))

    async def run(self, key: str, *, query: str = "", token: str | None = None, **fields: Any) -> Answer:
        return await self.call(
            "POST",
            f"/v1/automation/workflows/wf_invoice_settle/runs{query}",
            json=fields,
            headers={"A44-Idempotency-Key": key},
            token=token,
        )

    async def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True, row_factory=dict_row) as conn:
            cursor = await conn.execute(query.encode(), parameters)
            return await cursor.fetchall() if cursor.description is not None else []


async def raw(gateway: Gateway, sent: bytes) -> bytes:
    """Bytes on a connection of their own, and all that comes back."""
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    answer = b""
    try:
        async with asyncio.timeout(15):
            with suppress(ConnectionError):  # it may close while much is under way
                while part := await reader.read(65_536):
                    answer += part
            return answer
    finally:
        writer.close()


@pytest.fixture
def limits() -> Limits:
    return Limits(body_seconds=5.0, ping=0.3)


@pytest.fixture
def storage() -> Storage | None:
    return None


@pytest.fixture
def kept() -> Secrets | None:
    """Secrets of the project that the gateway can look up."""
    return None


@pytest.fixture
def queued() -> int:
    """How many requests may wait for their commit."""
    return MOST_QUEUED


@pytest.fixture
async def gateway(
    migrated_database: str, limits: Limits, storage: Storage | None, kept: Secrets | None, queued: int
) -> AsyncIterator[Gateway]:
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(open_pool(migrated_database, "gateway"))
        notifier = Notifier(migrated_database)
        stack.push_async_callback(notifier.aclose)
        door = PostgresDoor(migrated_database, "a44.events.v1", notifier, lambda _: None, queued=queued)
        await door.open()
        stack.push_async_callback(door.aclose)
        tokens = PostgresTokens(pool)
        measures, catalog, queries = Measures(), PostgresCatalog(pool), PostgresRunQueries(pool)
        letters, redrives = PostgresDeadLetters(pool), PostgresRedrives(pool)
        app = build_app(
            door,
            catalog,
            queries,
            tokens,
            letters,
            redrives,
            PostgresProjects(pool),
            PostgresTakenEvents(pool),
            MASTER_KEY,
            limits,
            measures,
            storage,
            kept,
        )
        site = await serve(app, "127.0.0.1", 0, limits)
        stack.push_async_callback(site.stop)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        token = await tokens.create_token(PROJECT, "tests", ["automation:write"])
        made = Gateway(site.url, migrated_database, session, token, tokens)
        made.app, made.door, made.measures = app, door, measures
        yield made


@pytest.fixture
async def secret(gateway: Gateway) -> str:
    """The secret of `trg_settle`, with its workflow published."""
    answer = await gateway.publish({"settle.yaml": WORKFLOW})
    assert answer.status == 200, answer.body
    return str(answer.body["webhooks"][0]["secret"])
