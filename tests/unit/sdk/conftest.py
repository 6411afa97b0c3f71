"""Clients of each kind against a real server that answers as a test tells it."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from anthares44.automation import AsyncClient, AsyncWebhookSender, Client, Retries, WebhookSender
from tests.support.scripted_service import Scripted, ScriptedService, scripted_service

TOKEN = "a44_token"
SECRET = "5" * 64
KEY = "order:ord_991:paid:v1"
QUICK = Retries(tries=4, base=0.001, cap=0.002)
CREATED = Scripted(202, {"event_id": "evt_1", "status": "created", "key_source": "body"})
STARTED = Scripted(202, {"run_id": "run_1", "event_id": "evt_1", "status": "created", "key_source": "header"})

Do = Callable[..., Any]


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with scripted_service() as running:
        yield running


@pytest.fixture(params=["blocking", "asyncio"])
def ask(request: pytest.FixtureRequest, service: ScriptedService) -> Do:
    """`ask("start", ...)` on a client of one kind; `_of` are options of the client."""

    def blocking(name: str, *args: Any, _of: dict[str, Any] | None = None, **given: Any) -> Any:
        with Client(service.url, TOKEN, **{"retries": QUICK, **(_of or {})}) as client:
            return getattr(client, name)(*args, **given)

    async def on_a_loop(name: str, *args: Any, _of: dict[str, Any] | None = None, **given: Any) -> Any:
        async with AsyncClient(service.url, TOKEN, **{"retries": QUICK, **(_of or {})}) as client:
            return await getattr(client, name)(*args, **given)

    if request.param == "blocking":
        return blocking
    return lambda *args, **given: asyncio.run(on_a_loop(*args, **given))


@pytest.fixture(params=["blocking", "asyncio"])
def send(request: pytest.FixtureRequest, service: ScriptedService) -> Do:
    """`send(payload, key=...)` to a webhook, by one kind of sender."""
    url = f"{service.url}/v1/pj_shop/trg_paid"

    def blocking(payload: Any, *, key: str = KEY, **of: Any) -> Any:
        with WebhookSender(url, SECRET, **{"retries": QUICK, **of}) as sender:
            return sender.send(payload, key=key)

    async def on_a_loop(payload: Any, *, key: str = KEY, **of: Any) -> Any:
        async with AsyncWebhookSender(url, SECRET, **{"retries": QUICK, **of}) as sender:
            return await sender.send(payload, key=key)

    if request.param == "blocking":
        return blocking
    return lambda *args, **given: asyncio.run(on_a_loop(*args, **given))


def run_told(state: str, **members: Any) -> Scripted:
    return Scripted(200, {"run_id": "run_1", "state": state, "where": "Where it is.", **members})
