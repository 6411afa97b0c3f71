"""Addresses of callers at a gateway: tokens of certain networks, and what a header can do about it."""

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from ops.cli.app import run
from processors.gateway.limits import Limits
from processors.ports.addresses import networks_of
from schemas.errors import Refused
from tests.integration.gateway.conftest import PROJECT, Gateway

WHOAMI = "/v1/automation/whoami"
OFFICE = "203.0.113.0/24"
INSIDE, OUTSIDE = "203.0.113.9", "198.51.100.7"


@pytest.fixture
async def office(gateway: Gateway) -> str:
    return await gateway.tokens.create_token(PROJECT, "office", ["automation:read"], networks=[OFFICE])


class TestBehindATrustedProxy:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(trusted_proxies=networks_of(["127.0.0.0/8", "10.0.0.0/8"]))

    @pytest.mark.parametrize(
        ("told", "status"),
        [
            (INSIDE, 200),
            (f"{OUTSIDE}, {INSIDE}", 200),
            (f"{INSIDE}, 10.1.2.3", 200),
            (OUTSIDE, 403),
            (f"{INSIDE}, {OUTSIDE}", 403),
            (f"{INSIDE}, {OUTSIDE}, 10.1.2.3", 403),
            (f"{INSIDE}, nonsense", 403),
            ("", 403),
        ],
    )
    async def test_h10_only_what_the_proxy_saw_opens_the_door(
        self, gateway: Gateway, office: str, told: str, status: int
    ) -> None:
        answer = await gateway.call("GET", WHOAMI, token=office, headers={"X-Forwarded-For": told})
        assert answer.status == status
        if status == 403:
            assert answer.code == "E_TOKEN_ADDRESS"
        else:
            assert answer.body["networks"] == [OFFICE]


async def test_h10_a_header_from_outside_has_no_effect(gateway: Gateway, office: str) -> None:
    spoofs = [{name: INSIDE} for name in ("X-Forwarded-For", "X-Real-IP", "True-Client-IP", "CF-Connecting-IP")]
    spoofs += [{"Forwarded": f"for={INSIDE}"}, {}]
    with capture_logs() as logs:
        for headers in spoofs:
            answer = await gateway.call("GET", WHOAMI, token=office, headers=headers)
            assert (answer.status, answer.code) == (403, "E_TOKEN_ADDRESS")
            assert "this call comes from 127.0.0.1" in answer.body["detail"]
            assert "203.0.113" not in str(answer.body)  # a stolen token tells nothing of itself
    told = [line for line in logs if line["event"] == "token_elsewhere"]
    assert {line["caller"] for line in told} == {"127.0.0.1"}
    assert len(told) == len(spoofs)
    assert (await gateway.call("GET", WHOAMI)).status == 200  # a token of no network works from everywhere


@pytest.mark.parametrize("network", ["203.0.113.7/24", "everywhere", "", "0.0.0.0/33"])
async def test_a_token_of_a_network_that_is_none_is_not_made(gateway: Gateway, network: str) -> None:
    with pytest.raises(Refused, match="is no network such as") as caught:
        await gateway.tokens.create_token(PROJECT, "office", ["automation:read"], networks=[OFFICE, network])
    assert caught.value.code == "E_INVALID_PARAMETER"
    assert await gateway.rows("select from automation.tokens where name = 'office'") == []


async def test_the_guides_command_makes_a_token_of_that_network_as_printed(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    line = "auth token create --name ci-deploy-automation --scope automation:write --expires 30d --allow-cidr"
    monkeypatch.setenv("A44_POSTGRES_DSN", gateway.dsn)
    monkeypatch.setenv("A44_PROJECT", PROJECT)
    assert await asyncio.to_thread(run, [*line.split(), OFFICE]) == 0
    token = capfd.readouterr().out.strip()
    answer = await gateway.call("GET", WHOAMI, token=token)
    assert (answer.status, answer.code) == (403, "E_TOKEN_ADDRESS")
    audit = "select details from automation.audit_log where action = 'token.create' order by audit_id desc limit 1"
    [row] = await gateway.rows(audit)
    assert json.loads(row["details"])["networks"] == [OFFICE]
