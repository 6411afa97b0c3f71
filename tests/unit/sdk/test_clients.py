"""The clients against a real server that fails on purpose: the blocking ones and those for asyncio alike."""

import asyncio
import hashlib
import hmac
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from anthares44.automation import (
    AsyncClient,
    AsyncWebhookSender,
    Client,
    Retries,
    RunDidNotSucceed,
    RunNotEnded,
    ServiceError,
    ServiceRefused,
    ServiceUnavailable,
    WebhookSender,
    webhook_headers,
)
from tests.support.scripted_service import LOST, Scripted, ScriptedService, problem
from tests.unit.sdk.conftest import CREATED, KEY, QUICK, SECRET, STARTED, TOKEN, Do, run_told


def test_an_event_is_sent_with_its_key_and_token(service: ScriptedService, ask: Do) -> None:
    service.script(CREATED)
    at = datetime(2026, 7, 19, 14, 2, tzinfo=UTC)
    told = ask(
        "send_event", "a.b", {"name": "Ana ☃"}, key=KEY, partition_key="ana", occurred_at=at, correlation_id="c1"
    )
    assert (told.event_id, told.status, told.key_age_seconds) == ("evt_1", "created", None)
    sent = service.seen[0]
    assert (sent.method, sent.target) == ("POST", "/v1/automation/events")
    assert sent.headers["authorization"] == f"Bearer {TOKEN}"
    assert json.loads(sent.body) == {
        "type": "a.b",
        "idempotency_key": KEY,
        "partition_key": "ana",
        "occurred_at": "2026-07-19T14:02:00+00:00",
        "correlation_id": "c1",
        "data": {"name": "Ana ☃"},
    }


def test_a_run_is_started_and_a_repeat_tells_of_the_first(service: ScriptedService, ask: Do) -> None:
    again = {"run_id": "run_1", "event_id": "evt_1", "status": "deduplicated", "state": "running"}
    service.script(STARTED, Scripted(200, {**again, "key_age_seconds": 4, "from_tomorrow": 1}, is_chunked=True))
    assert ask("start", "wf_x/y", {"n": 1}, key=KEY, version="3").run_id == "run_1"
    assert service.seen[0].target == "/v1/automation/workflows/wf_x%2Fy/runs"
    assert service.seen[0].headers["a44-idempotency-key"] == KEY
    assert json.loads(service.seen[0].body) == {"version": "3", "input": {"n": 1}}
    told = ask("start", "wf_x", key=KEY)
    assert (told.status, told.state, told.key_age_seconds) == ("deduplicated", "running", 4.0)
    assert service.seen[1].body == b'{"input":{}}'


@pytest.mark.parametrize("fault", [LOST, Scripted(502), problem(503, "E_UNAVAILABLE"), problem(500, "E_INTERNAL")])
def test_what_may_have_been_kept_is_sent_again_with_the_same_key_and_bytes(
    service: ScriptedService, ask: Do, fault: Scripted
) -> None:
    service.script(fault, fault, STARTED)
    assert ask("start", "wf_x", {"a": 1.0}, key=KEY).run_id == "run_1"
    assert len({(sent.body, sent.headers["a44-idempotency-key"]) for sent in service.seen}) == 1
    assert len(service.seen) == 3


def test_what_a_repeat_cannot_help_is_told_at_once(service: ScriptedService, ask: Do) -> None:
    service.script(problem(422, "E_IDEMPOTENCY_CONFLICT", "another key for another event", request_id="req_1"))
    with pytest.raises(ServiceRefused, match="E_IDEMPOTENCY_CONFLICT: another key for another event") as caught:
        ask("send_event", "a.b", {}, key=KEY)
    assert (caught.value.code, caught.value.status) == ("E_IDEMPOTENCY_CONFLICT", 422)
    assert caught.value.details["request_id"] == "req_1"
    assert len(service.seen) == 1


def test_it_is_given_up_after_its_tries(service: ScriptedService, ask: Do) -> None:
    service.script(*[problem(503, "E_UNAVAILABLE", "Postgres does not answer now")] * 4)
    with pytest.raises(ServiceUnavailable, match="Postgres does not answer now"):
        ask("send_event", "a.b", {}, key=KEY)
    assert service.answers == []


def test_a_service_that_is_not_there_is_named(ask: Do) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ServiceUnavailable, match=f"127.0.0.1:{port} refuses connections; is the gateway up"):
        Client(f"http://127.0.0.1:{port}", TOKEN, retries=QUICK).start("wf_x", key=KEY)
    with pytest.raises(ServiceUnavailable, match=f"127.0.0.1:{port} refuses connections"):
        asyncio.run(AsyncClient(f"http://127.0.0.1:{port}", TOKEN, retries=QUICK).start("wf_x", key=KEY))


def test_a_service_that_is_silent_is_given_up(ask: Do) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        once = Retries(tries=1)
        with pytest.raises(ServiceUnavailable, match="did not answer in time"):
            Client(url, TOKEN, retries=once, timeout=0.05).start("wf_x", key=KEY)
        with pytest.raises(ServiceUnavailable, match="did not answer in time"):
            asyncio.run(AsyncClient(url, TOKEN, retries=once, timeout=0.05).start("wf_x", key=KEY))


@pytest.mark.parametrize(
    "of", [lambda: "1", lambda: format_datetime(datetime.now(UTC) + timedelta(seconds=4), usegmt=True)]
)
def test_retry_after_is_waited_for(service: ScriptedService, ask: Do, of: Callable[[], str]) -> None:
    shed = problem(429, "E_OVERLOADED")
    service.script(Scripted(429, shed.document, {"Retry-After": of()}), STARTED)
    began = time.monotonic()
    assert ask("start", "wf_x", key=KEY).run_id == "run_1"
    assert time.monotonic() - began >= 0.9


def test_a_retry_after_beyond_the_patience_is_told_and_not_waited_for(service: ScriptedService, ask: Do) -> None:
    service.script(Scripted(429, problem(429, "E_OVERLOADED").document, {"Retry-After": "3600"}))
    with pytest.raises(ServiceUnavailable) as caught:
        ask("start", "wf_x", key=KEY)
    assert caught.value.retry_after == 3600.0


def test_an_answer_of_another_service_is_recognised(service: ScriptedService, ask: Do) -> None:
    for answer in (Scripted(404), Scripted(302), Scripted(200, []), Scripted(200, {}), Scripted(200)):
        service.script(answer)
        with pytest.raises(ServiceError, match=r"address|cannot be read"):
            ask("send_event", "a.b", {}, key=KEY)


def test_one_connection_serves_many_calls_and_a_closed_one_is_replaced(service: ScriptedService) -> None:
    closing = Scripted(STARTED.status, STARTED.document, {"Connection": "close"})
    script = (STARTED, STARTED, closing, STARTED, LOST, STARTED)

    def used() -> list[int]:
        ports = [sent.connection[1] for sent in service.seen]
        return [ports.index(port) for port in ports]

    with Client(service.url, TOKEN, retries=Retries(tries=1)) as client:
        service.script(*script)
        for _ in range(5):
            client.start("wf_x", key=KEY)
    assert used() == [0, 0, 0, 3, 3, 5]

    async def on_a_loop() -> None:
        async with AsyncClient(service.url, TOKEN, retries=Retries(tries=1)) as client:
            for _ in range(5):
                await client.start("wf_x", key=KEY)

    service.script(*script)
    asyncio.run(on_a_loop())
    assert used() == [0, 0, 0, 3, 3, 5]


def test_an_asyncio_client_may_be_used_on_one_loop_after_another(service: ScriptedService) -> None:
    service.script(STARTED, STARTED)
    client = AsyncClient(service.url, TOKEN, retries=QUICK)

    async def once() -> str:
        async with client:
            return (await client.start("wf_x", key=KEY)).run_id

    async def on_another(loop: asyncio.AbstractEventLoop) -> None:
        await client.start("wf_x", key=KEY)
        with pytest.raises(RuntimeError, match="aclose"):
            await asyncio.to_thread(loop.run_until_complete, client.start("wf_x", key=KEY))
        await client.aclose()

    assert asyncio.run(once()) == "run_1"
    other = asyncio.new_event_loop()
    asyncio.run(on_another(other))
    other.close()


async def test_a_cancelled_wait_ends_at_once_and_leaves_no_connection() -> None:
    gone = asyncio.Event()

    async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()
        gone.set()

    async with await asyncio.start_server(never_answers, "127.0.0.1", 0) as server:
        client = AsyncClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", TOKEN)
        waiting = asyncio.create_task(client.result("run_1"))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiting, 0.2)
        await asyncio.wait_for(gone.wait(), 10)


def test_a_result_is_waited_for(service: ScriptedService, ask: Do) -> None:
    service.script(run_told("accepted"), run_told("running"), LOST, run_told("succeeded", result={"total": 7}))
    assert ask("result", "run_1") == {"total": 7}
    assert [sent.target.partition("wait=")[2] for sent in service.seen[:2]] == ["", "20.000"]


def test_the_time_of_a_result_ends(service: ScriptedService, ask: Do) -> None:
    service.script(*[run_told("sleeping")] * 9)
    with pytest.raises(RunNotEnded, match=r"run_1 is sleeping after 0\.05 s") as caught:
        ask("result", "run_1", timeout=0.05)
    assert isinstance(caught.value, TimeoutError)


@pytest.mark.parametrize("state", ["failed", "cancelled", "blocked"])
def test_a_run_that_did_not_succeed_raises_its_error(service: ScriptedService, ask: Do, state: str) -> None:
    error = {"error_code": "E_UPSTREAM_503", "error": {"message": "the partner answered 503"}}
    service.script(run_told(state, **(error if state == "failed" else {})))
    with pytest.raises(RunDidNotSucceed, match="a44 automation show run_1") as caught:
        ask("result", "run_1")
    assert caught.value.state == state
    if state == "failed":
        assert caught.value.code == "E_UPSTREAM_503"
        assert "the partner answered 503" in caught.value.message


def test_cancelling_twice_is_no_error(service: ScriptedService, ask: Do) -> None:
    ended = problem(409, "E_RUN_ENDED", state="cancelled")
    service.script(LOST, ended, Scripted(202, {"run_id": "run_1", "status": "cancelling"}))
    assert ask("cancel", "run_1", reason="ordered twice") == "cancelled"
    assert json.loads(service.seen[0].body) == {"reason": "ordered twice"}
    assert ask("cancel", "run_1") == "cancelling"
    service.script(problem(409, "E_RUN_ENDED", state="succeeded"))
    with pytest.raises(ServiceRefused, match="E_RUN_ENDED"):
        ask("cancel", "run_1")


@pytest.mark.parametrize("key", ["", " ", " k", "k\n", "k\ud800", "k\x9f"])
def test_a_key_that_would_not_arrive_as_it_is_is_refused(service: ScriptedService, ask: Do, key: str) -> None:
    with pytest.raises(ServiceRefused, match="E_IDEMPOTENCY_KEY_INVALID"):
        ask("start", "wf_x", key=key)
    assert service.seen == []


@pytest.mark.parametrize(
    "url", ["", "ftp://host", "http://u:p@host", "http://host?x=1", "http://host:99999", "http://a b"]
)
def test_a_wrong_address_is_refused_with_what_was_expected(url: str) -> None:
    for kind in (Client, AsyncClient, WebhookSender, AsyncWebhookSender):
        with pytest.raises(ServiceRefused, match=r"E_CONFIG.*expected"):
            kind(url, TOKEN)


def test_secrets_are_checked_and_not_shown() -> None:
    for kind in (Client, AsyncClient, WebhookSender, AsyncWebhookSender):
        with pytest.raises(ServiceRefused, match="E_CREDENTIALS") as caught:
            kind("http://127.0.0.1", "a44_secret\n")
        assert "a44_secret" not in str(caught.value)
    with pytest.raises(ServiceRefused, match="expected at least one try"):
        Retries(tries=0)
    with pytest.raises(ServiceRefused, match="a time with its zone"):
        Client("http://127.0.0.1", TOKEN).send_event("a.b", {}, key=KEY, occurred_at=datetime(2026, 7, 19))  # noqa: DTZ001


def test_headers_can_be_made_for_another_http_client() -> None:
    headers = webhook_headers(SECRET, b"{}", key=KEY, at=1_700_000_000.0)
    expected = hmac.new(SECRET.encode(), b"1700000000.{}", hashlib.sha256).hexdigest()
    assert (headers["A44-Timestamp"], headers["A44-Signature"]) == ("1700000000", expected)


def test_pauses_grow_to_their_cap_and_are_drawn() -> None:
    retries = Retries(base=1.0, cap=8.0)
    drawn = [[retries.pause(tried) for _ in range(200)] for tried in (1, 2, 3, 4, 5, 500)]
    for most, pauses in zip((1, 2, 4, 8, 8, 8), drawn, strict=True):
        assert most * 0.5 < max(pauses) <= most
        assert min(pauses) < most * 0.5


def test_a_workflow_that_asks_for_no_client_loads_no_http() -> None:
    script = (
        "import sys, anthares44.automation as sdk\n"
        "assert 'http.client' not in sys.modules\n"
        "sdk.Client; assert 'http.client' in sys.modules\n"
        "from anthares44.automation import *\n"
        "assert not [name for name in sdk.__all__ if name not in globals()]\n"
        "try: sdk.nothing\n"
        "except AttributeError: pass\n"
        "else: raise SystemExit('it has everything')"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
