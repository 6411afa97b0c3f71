"""Read by mypy, never run: what a type checker knows of a program that talks to the service."""

from typing import Any, Literal, assert_type

from anthares44.automation import AsyncClient, AsyncWebhookSender, Client, Retries, WebhookSender
from anthares44.automation.client import SentEvent, SentWebhook, StartedRun


def blocking(client: Client, sender: WebhookSender) -> None:
    event = client.send_event("a.b", {"n": 1}, key="k")
    assert_type(event, SentEvent)
    assert_type(event.status, Literal["created", "deduplicated"])
    started = client.start("wf_x", {"n": 1}, key="k", version="3")
    assert_type(started, StartedRun)
    assert_type(started.run_id, str)
    assert_type(client.result(started.run_id, timeout=30), Any)
    assert_type(client.cancel(started.run_id, reason="twice"), Literal["cancelling", "cancelled"])
    told = sender.send([1, 2], key="k")
    assert_type(told, SentWebhook)
    assert_type(told.run_id, str | None)
    client.start("wf_x", {})  # type: ignore[call-arg]
    sender.send({})  # type: ignore[call-arg]
    Client("http://127.0.0.1", "t", retries=3)  # type: ignore[arg-type]


async def on_a_loop() -> None:
    async with AsyncClient("http://127.0.0.1", "t", retries=Retries(tries=2)) as client:
        assert_type(client, AsyncClient)
        assert_type(await client.send_event("a.b", None, key="k"), SentEvent)
        assert_type(await client.start("wf_x", key="k"), StartedRun)
        assert_type(await client.result("run_x"), Any)
        assert_type(await client.cancel("run_x"), Literal["cancelling", "cancelled"])
    async with AsyncWebhookSender("http://127.0.0.1/v1/p/t", "s", dumps=str) as sender:
        assert_type(await sender.send({}, key="k"), SentWebhook)
