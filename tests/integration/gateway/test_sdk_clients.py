"""The SDK's clients against a real gateway: the guide's programs run as printed, and each decision arrives."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anthares44.automation import (
    AsyncClient,
    AsyncWebhookSender,
    Client,
    Retries,
    RunDidNotSucceed,
    RunNotEnded,
    ServiceRefused,
    WebhookSender,
)
from tests.integration.gateway.conftest import PROJECT, Gateway
from tests.integration.gateway.histories import end_run
from tests.support.documents import page
from tests.support.waiting import until

SCAFFOLD = Path(__file__).parents[3] / "ops" / "scaffold" / "flows"
KEY = "invoice:inv_8812:finalized:v1"
ONCE = Retries(tries=1)


@pytest.fixture
async def client(gateway: Gateway, secret: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(gateway.url, gateway.token, retries=ONCE) as made:
        yield made


async def live_run(gateway: Gateway) -> str:
    made: list[str] = []

    async def is_made() -> bool:
        made.extend(row["run_id"] for row in await gateway.rows("select run_id from automation.live_runs"))
        return bool(made)

    await until(is_made, "the run is made")
    return made[0]


async def printed(block: str, **environment: str) -> str:
    """What a program prints; it must end well."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", block, env={**os.environ, **environment}, stdout=-1, stderr=-1
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_the_programs_of_the_guide_run_as_printed(gateway: Gateway) -> None:
    blocks = [text for language, text in page("docs/guides/python-clients.md").blocks if language == "python"]
    start, event, webhook = blocks
    flows = {path.name.removesuffix(".template"): path.read_text("utf-8") for path in SCAFFOLD.iterdir()}
    published = await gateway.publish(flows)
    assert published.status == 200, published.body
    hook = published.body["webhooks"][0]
    access = {"A44_URL": gateway.url, "A44_TOKEN": gateway.token, "HOOK_SECRET": hook["secret"]}

    running = asyncio.create_task(printed(start, **access))
    run_id = await live_run(gateway)
    await end_run(gateway.dsn, run_id, state="succeeded", result='{"receipt": "kept"}')
    assert await running == f"created {run_id}\n{{'receipt': 'kept'}}\n"

    assert await printed(event, **access) == "['created', 'created', 'created']\n"
    assert await printed(event, **access) == "['deduplicated', 'deduplicated', 'deduplicated']\n"
    told = await printed(webhook.replace("/v1/dev/", f"/v1/{PROJECT}/"), **access)
    assert told.startswith("created run_")
    assert (await printed(webhook.replace("/v1/dev/", f"/v1/{PROJECT}/"), **access)).startswith("deduplicated run_")


async def test_the_blocking_clients_meet_the_same_answers(gateway: Gateway, secret: str) -> None:
    def calls() -> tuple[str, ...]:
        with Client(gateway.url, gateway.token, retries=ONCE) as client:
            first = client.start("wf_invoice_settle", {"a": 1}, key="k1")
            again = client.start("wf_invoice_settle", {"a": 1}, key="k1")
            assert (again.run_id, again.status) == (first.run_id, "deduplicated")
            assert again.key_age_seconds is not None
            with pytest.raises(RunNotEnded):
                client.result(first.run_id, timeout=0.1)
            assert client.cancel(first.run_id, reason="twice") == "cancelling"
            event = client.send_event("a.b", {"a": 1}, key="é☃")
            assert client.send_event("a.b", {"a": 1}, key="é☃").event_id == event.event_id
        with WebhookSender(f"{gateway.url}/v1/{PROJECT}/trg_settle", secret, retries=ONCE) as sender:
            statuses = [sender.send({"a": 1}, key=KEY).status for _ in range(2)]
            with pytest.raises(ServiceRefused, match="E_IDEMPOTENCY_CONFLICT"):
                sender.send({"a": 2}, key=KEY)
        return first.status, event.status, *statuses

    assert await asyncio.to_thread(calls) == ("created", "created", "created", "deduplicated")


async def test_a_refusal_carries_the_code_and_the_way_out(gateway: Gateway, client: AsyncClient) -> None:
    with pytest.raises(ServiceRefused, match="E_WORKFLOW_NOT_FOUND"):
        await client.start("wf_nowhere", key="k1")
    with pytest.raises(ServiceRefused, match=r"E_RUN_NOT_FOUND.*a44 automation runs"):
        await client.result("run_nowhere")
    async with AsyncWebhookSender(f"{gateway.url}/v1/{PROJECT}/trg_settle", "0" * 64, retries=ONCE) as sender:
        with pytest.raises(ServiceRefused, match=r"E_SIGNATURE.*sign what is sent, as it is sent"):
            await sender.send({}, key=KEY)


async def test_a05_a_body_with_spaces_is_signed_as_it_is_sent(gateway: Gateway, secret: str) -> None:
    sender = AsyncWebhookSender(
        f"{gateway.url}/v1/{PROJECT}/trg_settle", secret, retries=ONCE, dumps=lambda value: json.dumps(value, indent=3)
    )
    async with sender:
        assert (await sender.send({"b": [1, 2.0], "a": "é"}, key=KEY)).status == "created"


async def test_a18_digits_travel_to_the_log_and_back(gateway: Gateway, client: AsyncClient) -> None:
    numbers = {"safe": 2**53 + 1, "long": 123456789012345678901234567890, "one": 1.0, "low": -(2**80)}
    started = await client.start("wf_invoice_settle", numbers, key="k1")
    text = '{"safe":9007199254740993,"long":123456789012345678901234567890,"one":1.0,"low":-1208925819614629174706176}'
    rows = await gateway.rows("select input from automation.live_runs")
    assert rows[0]["input"] == text
    await end_run(gateway.dsn, started.run_id, state="succeeded", result=text)
    told = await client.result(started.run_id)
    assert told == numbers
    assert repr(told["one"]) == "1.0"


async def test_a_result_comes_as_soon_as_the_run_ends(gateway: Gateway, client: AsyncClient) -> None:
    started = [await client.start("wf_invoice_settle", {}, key=f"k{number}") for number in range(20)]
    waiting = [asyncio.create_task(client.result(one.run_id, timeout=60)) for one in started]
    for number, one in enumerate(started[:-1]):
        await end_run(gateway.dsn, one.run_id, state="succeeded", result=str(number))
    await end_run(gateway.dsn, started[-1].run_id, state="failed", error_code="E_UPSTREAM_503")
    assert await asyncio.gather(*waiting[:-1]) == list(range(19))
    with pytest.raises(RunDidNotSucceed, match="the partner answered 503") as caught:
        await waiting[-1]
    assert (caught.value.state, caught.value.code) == ("failed", "E_UPSTREAM_503")


async def test_a_question_for_a_run_may_wait_for_its_end(gateway: Gateway, secret: str) -> None:
    started = (await gateway.run("k1", input={})).body["run_id"]
    early = await gateway.call("GET", f"/v1/automation/runs/{started}?wait=0.1")
    assert (early.status, early.body["state"]) == (200, "granted")
    waiting = asyncio.create_task(gateway.call("GET", f"/v1/automation/runs/{started}?wait=30"))
    await end_run(gateway.dsn, started, state="succeeded", result="1")
    assert (await waiting).body["state"] == "succeeded"
    other = await gateway.tokens.create_token("pj_other", "tests", ["automation:read"])
    hidden = await gateway.call("GET", f"/v1/automation/runs/{started}?wait=30", token=other)
    assert (hidden.status, hidden.code) == (404, "E_RUN_NOT_FOUND")
    wrong = await gateway.call("GET", f"/v1/automation/runs/{started}?wait=soon")
    assert (wrong.status, wrong.code) == (400, "E_INVALID_PARAMETER")
