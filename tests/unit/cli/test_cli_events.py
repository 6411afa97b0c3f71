"""`a44 automation events send`: one event or a file of them, checked first, and the decision on each."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import RestService, prepared

SEND = ("automation", "events", "send")
KEY = ("--idempotency-key", "signup:1:v1")


def bodies(service: RestService) -> list[bytes]:
    return [seen.body for seen in service.state.seen if seen.path == "/v1/automation/events"]


def test_one_event_is_sent_as_it_was_typed(a44: Command, logged_in: RestService) -> None:
    data = '{"id": 9007199254740993, "one": 1.0, "long": 123456789012345678901234567890}'
    more = ("--partition-key", "ana", "--occurred-at", "2026-07-19T14:02:00Z")
    outcome = a44(*SEND, "--type", "a.b", "--data", data, *KEY, *more)
    assert outcome.code == 0
    assert outcome.out.startswith("1/1  202 evt_1   created")
    sent = bodies(logged_in)[0]
    assert data.encode() in sent
    assert json.loads(sent) == {
        "type": "a.b",
        "idempotency_key": "signup:1:v1",
        "partition_key": "ana",
        "occurred_at": "2026-07-19T14:02:00Z",
        "data": json.loads(data),
    }
    again = a44(*SEND, "--type", "a.b", "--data", data, *KEY, "--json").document
    assert (again["event"], again["of"], again["http_status"], again["status"]) == (1, 1, 200, "deduplicated")


def test_data_comes_from_a_file_or_a_pipe(a44: Command, logged_in: RestService, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"n": 1}')
    assert a44(*SEND, "--type", "a.b", "--data", "@data.json").code == 0
    assert a44(*SEND, "--type", "a.b", "--data", "-", stdin=b'{"n": 2}').code == 0
    assert [json.loads(body)["data"] for body in bodies(logged_in)] == [{"n": 1}, {"n": 2}]


def test_each_line_of_a_file_is_an_event_as_it_stands(a44: Command, logged_in: RestService, tmp_path: Path) -> None:
    lines = ['{"type":"a.b","data":{"n":1.0}, "idempotency_key":"k1"}', "", '{"type":"a.b","data":2e5,"id":"x"}', ""]
    (tmp_path / "events.ndjson").write_text("\n".join(lines))
    outcome = a44(*SEND, "--file", "events.ndjson")
    assert [line.split()[:2] for line in outcome.out.splitlines()] == [["1/2", "202"], ["2/2", "202"]]
    assert bodies(logged_in) == [lines[0].encode(), lines[2].encode()]
    pretty = b'{\n  "type": "a.b",\n  "data": {"n": 3}\n}'
    assert a44(*SEND, "--file", "-", stdin=pretty).out.startswith("1/1  202")
    assert bodies(logged_in)[-1] == pretty


def test_a_file_with_a_fault_is_refused_before_anything_is_sent(
    a44: Command, logged_in: RestService, tmp_path: Path
) -> None:
    (tmp_path / "events.ndjson").write_text('{"type":"a.b","data":1}\n{"type":"a.b"}\nnot json\n[1]\n')
    outcome = a44(*SEND, "--file", "events.ndjson", "--json")
    assert (outcome.code, outcome.problem["code"]) == (2, "E_JSON_INVALID")
    assert [(fault["line"], fault["file"]) for fault in outcome.problem["errors"]] == [
        (2, "events.ndjson"),
        (3, "events.ndjson"),
        (4, "events.ndjson"),
    ]
    assert "events.ndjson:2: an event without data" in a44(*SEND, "--file", "events.ndjson").err
    assert bodies(logged_in) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "--type and --data"),
        (("--file", "nowhere"), "No such file"),
        (("--file", "-", "--type", "a.b"), "holds whole events"),
        (("--file", "-"), "holds no event"),
        (("--type", "a.b", "--data", "{"), "--data is not JSON"),
        (("--type", "a.b", "--data", "@nowhere"), "No such file"),
    ],
)
def test_wrong_use_says_what_was_expected(
    a44: Command, logged_in: RestService, arguments: tuple[str, ...], told: str
) -> None:
    outcome = a44(*SEND, *arguments)
    assert (outcome.code, told in outcome.err) == (2, True)
    assert bodies(logged_in) == []


def test_a_refusal_is_shown_in_its_place_and_the_rest_is_sent(
    a44: Command, logged_in: RestService, tmp_path: Path
) -> None:
    (tmp_path / "events.ndjson").write_text('{"type":"","data":1}\n{"type":"a.b","data":2}\n')
    outcome = a44(*SEND, "--file", "events.ndjson")
    assert outcome.code == 3
    assert [line.split()[1] for line in outcome.out.splitlines()] == ["422", "202"]
    records = [json.loads(line) for line in a44(*SEND, "--file", "events.ndjson", "--json").out.splitlines()]
    assert [record["event"] for record in records] == [1, 2]
    assert records[0]["code"] == "E_ENVELOPE_INVALID"


def test_where_the_service_goes_away_it_says_how_far_it_came(
    a44: Command, logged_in: RestService, tmp_path: Path
) -> None:
    lines = "".join(f'{{"type":"a.b","data":{number}}}\n' for number in range(3))
    (tmp_path / "events.ndjson").write_text(lines)
    logged_in.state.answers_after["/v1/automation/events"] = (
        1,
        prepared({"code": "E_UNAVAILABLE", "detail": "x"}, 503),
    )
    outcome = a44(*SEND, "--file", "events.ndjson")
    assert outcome.code == 5
    assert len(outcome.out.splitlines()) == 1
    assert "1 of 3 were sent; send the file again" in outcome.err
