"""Connectors of type http against a real server on loopback."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from processors.adapters.http import HttpConnector, open_http_connector
from processors.ports.actions import StepFailure
from schemas.errors import Refused
from schemas.records import ErrorInfo
from schemas.results import RESULT_BYTES
from tests.support.action_calls import SecretsInMemory, call_of
from tests.support.partner import Partner, running_partner
from topology.publication import read_files

STEP = "- {id: reserve-funds, uses: connector/payments.authorize, timeout: 15s}"
OPERATION = '{ method: POST, path: "/authorizations/{{ input.invoiceId }}", body: "{{ input }}" }'
INVOICE = {"invoiceId": "inv_8812", "amountCents": 2**70, "rate": 1.0}


class Shop:
    """A project with one connector, whose text a test may change."""

    def __init__(self, base_url: str) -> None:
        self.secrets = SecretsInMemory()
        self.base_url = f'"{base_url}"'
        self.operation = OPERATION
        self.rest = ""

    async def connector(self, project_id: str, connector_id: str) -> Any:
        assert (project_id, connector_id) == ("pj_shop", "con_payments")
        text = (
            f"- id: con_payments\n  type: http\n  baseUrl: {self.base_url}\n"
            f"  operations:\n    authorize: {self.operation}\n{self.rest}"
        )
        return read_files({"topology.yaml": text}).connectors[0]


@pytest_asyncio.fixture
async def partner() -> AsyncIterator[Partner]:
    async with running_partner() as found:
        yield found


@pytest.fixture
def shop(partner: Partner) -> Shop:
    return Shop(partner.url)


@pytest_asyncio.fixture
async def connector(shop: Shop) -> AsyncIterator[HttpConnector]:
    async with open_http_connector(shop.connector, shop.secrets, allow_private_egress=True) as found:
        yield found


async def failure(connector: HttpConnector, **call: Any) -> ErrorInfo:
    with pytest.raises(StepFailure) as failed:
        await connector(call_of(STEP, given=INVOICE, **call))
    return failed.value.error


async def test_an_operation_is_sent_as_declared(partner: Partner, shop: Shop, connector: HttpConnector):
    shop.operation = """
      method: PUT
      path: "/v1/authorizations/{{ input.invoiceId }}/x%20y"
      query: { "at most": "{{ input.rate }}", gone: "{{ null }}", tag: ["a&b", "c d"] }
      headers: { X-Invoice: "inv {{ input.invoiceId }}" }
      body: { amount: "{{ input.amountCents }}", note: "for {{ input.invoiceId }}" }
"""
    partner.reply(201, '{"id": "auth_1"}', "application/json; charset=utf-8")
    assert await connector(call_of(STEP, given=INVOICE | {"invoiceId": "a/b?c#d%"})) == '{"id": "auth_1"}'
    [asked] = partner.asked
    assert asked.method == "PUT"
    assert asked.raw_path == "/v1/authorizations/a%2Fb%3Fc%23d%25/x%20y?at%20most=1.0&tag=a%26b&tag=c%20d"
    assert json.loads(asked.body) == {"amount": 2**70, "note": "for a/b?c#d%"}
    assert asked.headers["X-Invoice"] == "inv a/b?c#d%"
    assert asked.headers["Idempotency-Key"] == "run_01J9XQ7M4K0000000000000000:reserve-funds:g1"
    assert asked.headers["Content-Type"] == "application/json"
    assert asked.headers["Host"] == f"127.0.0.1:{partner.port}"


async def test_with_is_the_input_of_the_operation(partner: Partner, connector: HttpConnector):
    step = """
- id: reserve-funds
  uses: connector/payments.authorize
  timeout: 15s
  with: { invoiceId: "{{ steps.find.id }}", of: "{{ input.invoiceId }}" }
"""
    await connector(call_of(step, given=INVOICE, steps={"find": {"id": 7}}))
    assert partner.asked[0].raw_path == "/authorizations/7"
    assert json.loads(partner.asked[0].body) == {"invoiceId": 7, "of": "inv_8812"}


async def test_numbers_survive_both_ways(partner: Partner, connector: HttpConnector):
    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), content_type="application/json")

    partner.answer = echo
    text = await connector(call_of(STEP, given=INVOICE))
    assert json.loads(text) == INVOICE
    assert '"rate":1.0' in text


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b"", None, "null"),
        (b"", "application/json", "null"),
        (b'\xef\xbb\xbf{"a":1}', "application/json", '{"a":1}'),
        (b"[1]", "application/problem+json", "[1]"),
        (b'{"a": NaN}', "application/json", '{"a": NaN}'),
        (b"paid", "text/plain", '"paid"'),
        (b'{"a":1}', "text/plain", '"{\\"a\\":1}"'),
        ("não".encode("latin-1"), "text/plain; charset=ISO-8859-1", '"não"'),
        (b"plain", None, '"plain"'),
    ],
)
async def test_an_answer_becomes_json_text(
    partner: Partner, connector: HttpConnector, body: bytes, kind: str | None, expected: str
):
    partner.reply(200, body, kind)
    assert await connector(call_of(STEP, given=INVOICE)) == expected


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"\xff\xfe\x00", "application/octet-stream"), (b"a\x00b", "text/plain"), (b"x", "text/plain; charset=rot13")],
)
async def test_an_answer_that_is_no_text_is_refused(partner: Partner, connector: HttpConnector, body: bytes, kind: str):
    partner.reply(200, body, kind)
    with pytest.raises(Refused) as refusal:
        await connector(call_of(STEP, given=INVOICE))
    assert refusal.value.code == "E_RESULT_NOT_JSON"


@pytest.mark.parametrize("is_told", [True, False])
async def test_an_answer_over_the_limit_is_refused(partner: Partner, connector: HttpConnector, is_told: bool):
    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if is_told:
            response.content_length = RESULT_BYTES + 1
        await response.prepare(request)
        await response.write(b"x" * (RESULT_BYTES + 1))
        return response

    partner.answer = flood
    with pytest.raises(Refused) as refusal:
        await connector(call_of(STEP, given=INVOICE))
    assert refusal.value.code == "E_RESULT_TOO_LARGE"


@pytest.mark.parametrize(
    ("status", "is_retryable"),
    [(400, False), (404, False), (408, True), (422, False), (429, True), (500, True), (501, False), (503, True)],
)
async def test_a_status_says_whether_another_try_is_worth_it(
    partner: Partner, connector: HttpConnector, status: int, is_retryable: bool
):
    partner.reply(status, "card 4111 refused", "text/plain")
    error = await failure(connector)
    assert (error.code, error.retryable, error.retry_after) == (f"E_UPSTREAM_{status}", is_retryable, None)
    assert error.message == f"POST authorize of con_payments was answered with {status} (17 bytes)"


async def test_retry_on_is_the_connectors_to_declare(partner: Partner, shop: Shop, connector: HttpConnector):
    shop.rest = "  retryOn: [409]\n"
    partner.reply(409)
    assert (await failure(connector)).retryable is True
    partner.reply(503)
    assert (await failure(connector)).retryable is False


async def test_retry_after_is_honoured_where_a_try_follows(partner: Partner, connector: HttpConnector):
    partner.reply(429, Retry_After="7")
    assert (await failure(connector)).retry_after == 7.0
    partner.reply(503, Retry_After="Thu, 20 Aug 2026 09:00:00 GMT", Date="Thu, 20 Aug 2026 08:59:00 GMT")
    assert (await failure(connector)).retry_after == 60.0
    partner.reply(422, Retry_After="7")
    assert (await failure(connector)).retry_after is None


async def test_redirects_are_failed_tries(partner: Partner, connector: HttpConnector):
    partner.reply(302, Location="http://169.254.169.254/latest/meta-data/")
    error = await failure(connector)
    assert (error.code, error.retryable) == ("E_UPSTREAM_302", False)
    assert "169.254" not in error.message
    assert len(partner.asked) == 1


async def test_a_switch_to_another_protocol_is_no_success(shop: Shop, connector: HttpConnector):
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        shop.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        error = await failure(connector)
    assert (error.code, error.retryable) == ("E_UPSTREAM_101", False)


async def test_a_connection_that_is_refused_is_tried_again(shop: Shop, connector: HttpConnector):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        shop.base_url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        error = await failure(connector)
    assert (error.code, error.retryable) == ("E_UPSTREAM_UNREACHABLE", True)
    assert error.message == "POST authorize of con_payments: no connection (Connection refused)"


async def test_a_name_that_leads_nowhere_is_tried_again(shop: Shop, connector: HttpConnector):
    shop.base_url = "http://nowhere.invalid"
    error = await failure(connector)
    assert (error.code, error.retryable) == ("E_UPSTREAM_UNREACHABLE", True)
    assert error.message.endswith("the host's name cannot be resolved")


async def test_a_server_without_tls_is_not_reached_over_https(partner: Partner, shop: Shop, connector: HttpConnector):
    shop.base_url = partner.url.replace("http://", "https://")
    error = await failure(connector)
    assert (error.code, error.retryable) == ("E_UPSTREAM_UNREACHABLE", True)
    assert partner.asked == []


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "broke while the answer was read"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "is not HTTP"),
    ],
)
async def test_a_connection_that_breaks_is_tried_again(shop: Shop, connector: HttpConnector, sent: bytes, reason: str):
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        shop.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        error = await failure(connector)
    assert (error.code, error.retryable) == ("E_UPSTREAM_UNREACHABLE", True)
    assert reason in error.message


@pytest.mark.parametrize(
    ("operation", "rest", "seconds", "limit"),
    [("", "", 0.05, "0.05"), (", timeout: 60ms", "", 9.0, "0.06"), ("", "  timeout: 70ms\n", 9.0, "0.07")],
)
async def test_the_shortest_timeout_counts(
    partner: Partner, shop: Shop, connector: HttpConnector, operation: str, rest: str, seconds: float, limit: str
):
    over = asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        await over.wait()
        return web.Response()

    partner.answer = wait
    shop.rest = rest
    shop.operation = OPERATION[:-2] + operation + " }"
    error = await failure(connector, seconds=seconds)
    over.set()
    assert (error.code, error.retryable) == ("E_UPSTREAM_TIMEOUT", True)
    assert f"within {limit} s" in error.message


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ("{ kind: bearer, secretRef: sec_key }", "Authorization", "Bearer s3cret"),
        ("{ kind: basic, secretRef: sec_key, username: shop }", "Authorization", "Basic c2hvcDpzM2NyZXQ="),
        ("{ kind: header, secretRef: sec_key, header: X-Api-Key }", "X-Api-Key", "s3cret"),
    ],
)
async def test_a_secret_goes_out_as_declared(
    partner: Partner, shop: Shop, connector: HttpConnector, auth: str, header: str, value: str
):
    shop.rest = f"  auth: {auth}\n"
    with pytest.raises(Refused) as refusal:
        await connector(call_of(STEP, given=INVOICE))
    assert refusal.value.code == "E_SECRET_UNKNOWN"
    shop.secrets.found["sec_key"] = "s3cret\n"
    await connector(call_of(STEP, given=INVOICE))
    assert partner.asked[0].headers[header] == value


async def test_a_secret_that_no_header_can_carry_is_refused_unseen(shop: Shop, connector: HttpConnector):
    shop.rest = "  auth: { kind: bearer, secretRef: sec_key }\n"
    shop.secrets.found["sec_key"] = "s3cret\r\nX-Admin: 1"
    with pytest.raises(Refused) as refusal:
        await connector(call_of(STEP, given=INVOICE))
    assert refusal.value.code == "E_CONFIG"
    assert "s3cret" not in refusal.value.message


async def test_the_base_url_may_be_a_secret(partner: Partner, shop: Shop, connector: HttpConnector):
    shop.base_url = "{ secretRef: sec_url }"
    shop.secrets.found["sec_url"] = f"{partner.url}/base/"
    await connector(call_of(STEP, given=INVOICE))
    assert partner.asked[0].raw_path == "/base/authorizations/inv_8812"
    shop.secrets.found["sec_url"] = "http://user:hidden@127.0.0.1/"
    with pytest.raises(Refused) as refusal:
        await connector(call_of(STEP, given=INVOICE))
    assert refusal.value.code == "E_CONFIG"
    assert "hidden" not in str(refusal.value)


@pytest.mark.parametrize("url", ["http://169.254.169.254", "http://[fe80::1]", "http://[::ffff:169.254.169.254]:80"])
async def test_metadata_addresses_are_never_asked(shop: Shop, connector: HttpConnector, url: str):
    shop.base_url = f'"{url}"'
    with pytest.raises(Refused) as refusal:
        await connector(call_of(STEP, given=INVOICE))
    assert refusal.value.code == "E_EGRESS_DENIED"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_loopback_is_denied_by_default(partner: Partner, shop: Shop, host: str):
    shop.base_url = f'"http://{host}:{partner.port}"'
    async with open_http_connector(shop.connector, shop.secrets) as connector:
        with pytest.raises(Refused) as refusal:
            await connector(call_of(STEP, given=INVOICE))
    assert refusal.value.code == "E_EGRESS_DENIED"
    assert partner.asked == []


@pytest.mark.parametrize("number", ["2130706433", "127.1", "0x7f000001", "0177.0.0.1"])
async def test_odd_spellings_of_an_address_do_not_slip_through(partner: Partner, shop: Shop, number: str):
    shop.base_url = f'"http://{number}:{partner.port}"'
    async with open_http_connector(shop.connector, shop.secrets) as connector:
        with pytest.raises((Refused, StepFailure)):
            await connector(call_of(STEP, given=INVOICE))
    assert partner.asked == []


@pytest.mark.parametrize("value", ["..", ".", "%2e%2e/x"])
async def test_a_value_stays_inside_its_segment(partner: Partner, connector: HttpConnector, value: str):
    if value.startswith("%"):
        await connector(call_of(STEP, given={"invoiceId": value}))
        assert partner.asked[0].raw_path == "/authorizations/%252e%252e%2Fx"
    else:
        with pytest.raises(Refused):
            await connector(call_of(STEP, given={"invoiceId": value}))
        assert partner.asked == []


async def test_cookies_are_not_kept(partner: Partner, connector: HttpConnector):
    partner.reply(200, Set_Cookie="session=of-another-project; Path=/")
    await connector(call_of(STEP, given=INVOICE))
    await connector(call_of(STEP, given=INVOICE))
    assert all("Cookie" not in asked.headers for asked in partner.asked)


async def test_an_operation_without_body_sends_none(partner: Partner, shop: Shop, connector: HttpConnector):
    shop.operation = '{ method: GET, path: "/status" }'
    await connector(call_of(STEP, given=INVOICE))
    assert partner.asked[0].body == b""
    assert "Content-Type" not in partner.asked[0].headers


async def test_an_unknown_operation_names_the_known_ones(shop: Shop, connector: HttpConnector):
    step = "- {id: a, uses: connector/payments.charge, timeout: 1s}"
    with pytest.raises(Refused, match="authorize") as refusal:
        await connector(call_of(step))
    assert refusal.value.code == "E_CONNECTOR_UNKNOWN"


async def test_a_cancelled_attempt_leaves_nothing_behind(partner: Partner, connector: HttpConnector):
    came, over = asyncio.Event(), asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        came.set()
        await over.wait()
        return web.Response()

    partner.answer = wait
    task = asyncio.create_task(connector(call_of(STEP, given=INVOICE)))
    async with asyncio.timeout(5):
        await came.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    over.set()
    partner.reply(200, "1", "application/json")
    assert await connector(call_of(STEP, given=INVOICE)) == "1"
