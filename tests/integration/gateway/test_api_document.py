"""The API's document: it names every route and every call of our own clients, and whatever it allows is answered
without a 5xx, in the form that it says.
"""

import asyncio
import re
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from processors.gateway.openapi import API, OPERATIONS
from processors.ports.tokens import SCOPES
from tests.integration.gateway.conftest import PROJECT, WORKFLOW, Gateway
from tests.support.sources import ROOT

EXAMPLES = 50
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def _shape(path: str) -> str:
    return re.sub(r"\{[^}]*\}+", "{}", path)


def test_the_document_names_every_route() -> None:
    source = (ROOT / "processors" / "gateway" / "app.py").read_text("utf-8")
    plain = source.replace("{_API}", API).replace("(_HOOK,", '("/v1/{project}/{trigger}",')
    routes = {(match[1], _shape(match[2])) for match in re.finditer(r'\b(get|post)\(f?"(/[^"]+)"', plain)}
    assert {(one.method, _shape(one.path)) for one in OPERATIONS} == routes


def test_the_document_names_every_call_of_the_command() -> None:
    source = (ROOT / "ops" / "client" / "rest.py").read_text("utf-8")
    called = {_shape(API + path) for path in re.findall(r"\{_API\}(/[a-z/-]+(?:\{[^}]*\}[a-z/-]*)*)", source)}
    assert called
    assert called <= {_shape(one.path) for one in OPERATIONS}


async def test_it_is_served_to_everybody(gateway: Gateway) -> None:
    answer = await gateway.call("GET", f"{API}/openapi.json", token="nobody")
    assert (answer.status, answer.body["openapi"]) == (200, "3.1.0")


def _fuzz(gateway: Gateway, told: dict[str, Any], mode: GenerationMode) -> int:
    """Calls everything with what the document allows, or with what it does not; answers how many calls were made."""
    schema = schemathesis.openapi.from_dict(told)
    schema.config.update(base_url=gateway.url)
    calls = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @seed(20261130)
        @SETTINGS
        @given(case=operation.as_strategy(generation_mode=mode))
        def call(case: schemathesis.Case) -> None:
            nonlocal calls
            calls += 1
            if case.path.endswith("/log"):
                case.query = {**(case.query or {}), "follow": "false"}  # or it would wait for news
            case.call_and_validate(
                headers={"Authorization": f"Bearer {gateway.token}"},
                # What must exist, or fit together, is more than a form.
                excluded_checks=[positive_data_acceptance, negative_data_rejection],
                timeout=20,
            )

        with suppress(Unsatisfiable):  # nothing can be wrong with a call that takes nothing
            call()
    return calls


# The gateway is in this process, and a driver of it that connects anew shuffles addresses: no strategy is at fault.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "not-allowed"])
async def test_whatever_is_sent_is_answered_as_the_document_says(gateway: Gateway, mode: GenerationMode) -> None:
    await gateway.publish({"settle.yaml": WORKFLOW})
    told = (await gateway.call("GET", f"{API}/openapi.json")).body
    gateway.token = await gateway.tokens.create_token(PROJECT, "fuzz", sorted(SCOPES))  # so that no scope ends a call
    calls = await asyncio.to_thread(_fuzz, gateway, told, mode)
    assert calls >= len(OPERATIONS)
