"""What a call of the API does not know is refused by name, with what may be meant; webhooks are let alone."""

import pytest

from tests.integration.gateway.conftest import Gateway


@pytest.mark.parametrize(
    ("method", "address", "says"),
    [
        ("GET", "runs?sate=failed", "the parameter 'sate' is not known here; did you mean `state`?"),
        ("GET", "runs/run_1?wiat=5", "the parameter 'wiat' is not known here; did you mean `wait`?"),
        ("GET", "dead-letters/dlq_1?envelope=true", "known here: `attempts`, `whole`"),
        ("GET", "workflows?limit=5", "the parameter 'limit' is not known here; this call takes no parameters"),
        ("POST", "workflows/wf_invoice_settle/runs?wiat=5", "did you mean `wait`?"),
    ],
)
async def test_a_parameter_that_no_call_knows_is_refused_by_name(
    gateway: Gateway, method: str, address: str, says: str
) -> None:
    answer = await gateway.call(method, f"/v1/automation/{address}", json={} if method == "POST" else None)
    assert (answer.status, answer.code) == (400, "E_INVALID_PARAMETER")
    assert says in answer.body["detail"]


async def test_what_a_sender_puts_behind_its_address_is_its_own(gateway: Gateway) -> None:
    assert (await gateway.call("GET", "/healthz?probe=7")).status == 200
    answer = await gateway.call("POST", "/v1/pj/trg_nobody?source=shop", json={})
    assert answer.code == "E_SIGNATURE"


async def test_an_unknown_field_is_refused_with_the_one_that_may_be_meant(gateway: Gateway) -> None:
    answer = await gateway.run("k1", inptu={})
    assert answer.body["detail"].endswith("unknown field `inptu`; did you mean `input`?")
