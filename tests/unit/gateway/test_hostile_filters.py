"""Filters and data that mean harm: refused at publication with their place, or answered in bounded time and by name."""

import time

import pytest

from processors.ports.runs import NewRun
from processors.runtime.matching import Miss, match
from schemas.envelope import Envelope
from schemas.errors import Refused
from schemas.ids import new_event_id
from tests.unit.gateway.catalogs import PROJECT, snapshot_of
from topology.publication import read_files

FLOW = """
name: settle
version: 1
steps: [{id: pause, uses: sleep, duration: 1s}]
"""
SOON = 5.0  # seconds: a sign that something is bounded, no measure of it


def files(text: str) -> dict[str, str]:
    quoted = "'" + text.replace("'", "''") + "'"
    trigger = f"- {{id: trg_settle, type: event, event: order.paid, workflow: wf_settle, filter: {quoted}}}\n"
    return {"settle.yaml": FLOW, "triggers.yaml": trigger}


def told(text: str, data: str) -> str:
    """What the filter makes of the data: run, miss, or the code of a refusal."""
    snapshot = snapshot_of(files(text))
    envelope = Envelope(
        id=new_event_id(1_784_500_860_000), type="order.paid", idempotency_key="k", partition_key="p",
        occurred_at="2026-07-19T14:02:11Z", project_id=PROJECT, data=data,
    )  # fmt: skip
    began = time.perf_counter()
    (found,) = match(snapshot, envelope)
    assert time.perf_counter() - began < SOON
    if isinstance(found, Refused):
        assert found.details["trigger_id"] == "trg_settle"
        assert len(found.message) < 1000
        return found.code
    return {NewRun: "run", Miss: "miss"}[type(found)]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 2000 + "true" + ")" * 2000,
        "data" + ".a" * 2000 + " == 1",
        "true" + " && true" * 2000,
        'data.text == "' + "x" * 100_000 + '"',
        "data.n == " + "9" * 3000,
        "data.n == 9223372036854775808",
        'data.text == "a\\u0000b" && data.n > "',
        "data.l" + ".map(a, [a, a])" * 40 + " == []",
    ],
    ids=["nested", "deep field", "many terms", "100 KB", "3000 digits", "over 64 bits", "NUL", "macros"],
)
def test_a_hostile_filter_is_refused_at_publication_with_its_place_and_soon(text: str) -> None:
    began = time.perf_counter()
    with pytest.raises(Refused) as caught:
        read_files(files(text))
    assert time.perf_counter() - began < SOON
    refused = caught.value
    assert refused.code == "E_EXPRESSION"
    assert refused.place is not None
    assert (refused.place.file, refused.place.line) == ("triggers.yaml", 1)
    assert len(refused.message) < 1000


NESTED = "[" * 100 + "1" + "]" * 100
NUMBERS = "[" + ",".join(["1"] * 20_000) + "]"


@pytest.mark.parametrize(
    ("text", "data", "answer"),
    [
        pytest.param("data.deep != 1", f'{{"deep":{NESTED}}}', "E_FILTER_ERROR", id="deep data that is read"),
        pytest.param("data.n == 1", f'{{"deep":{NESTED},"n":1}}', "run", id="deep data that is not read"),
        pytest.param(
            "data.l.exists(x, x == 2)", f'{{"l":{NUMBERS}}}', "E_FILTER_ERROR", id="a macro over a large list"
        ),
        pytest.param(
            "data.l.all(x, data.l.all(y, data.l.all(z, x + y + z == 3)))",
            '{"l":[' + ",".join(["1"] * 500) + "]}",
            "E_FILTER_ERROR",
            id="macros in macros",
        ),
        pytest.param('data.text == "a"', '{"text":"' + "x" * 100_000 + '"}', "E_FILTER_ERROR", id="100 KB of text"),
        pytest.param("data.n > 5", f'{{"n":{2**70}}}', "E_FILTER_ERROR", id="order of what is over 64 bits"),
        pytest.param("data.n < 5", f'{{"n":-{2**70}}}', "E_FILTER_ERROR", id="order of what is far below nothing"),
        pytest.param(f"data.n == {2**63 - 1}", f'{{"n":{2**63}}}', "miss", id="a bit more than 64 bits is another"),
        pytest.param("data.n + 1 > 0", f'{{"n":{2**70}}}', "E_FILTER_ERROR", id="reckoning with over 64 bits"),
        pytest.param('data.text == "a"', '{"text":"a\\u0000b"}', "E_BODY_UNSTORABLE", id="NUL"),
        pytest.param("!" * 4000 + "true", "{}", "run", id="negated four thousand times"),
        pytest.param(f"data.n != {2**63 - 1}", f'{{"n":{2**70}}}', "run", id="over 64 bits is no smaller number"),
        pytest.param("data.n / data.zero > 1", '{"n":1,"zero":0}', "E_FILTER_ERROR", id="by nothing"),
        pytest.param("data.n + 9223372036854775807 > 1", '{"n":1}', "E_FILTER_ERROR", id="overflow"),
    ],
)
def test_hostile_data_is_answered_by_name_and_soon(text: str, data: str, answer: str) -> None:
    assert told(text, data) == answer
