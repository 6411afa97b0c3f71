"""`a44 automation events send`: one event or a file of them, checked first, and the decision on each."""

import json
from pathlib import Path

import pytest

from ops.cli import event_files
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
    assert bodies(logged_in) == [f"{lines[0]}\n{lines[2]}".encode()]
    assert logged_in.state.seen[0].headers["content-type"] == "application/x-ndjson"
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
        (("--type", "a.b", "--from", "2"), "--from is 2"),
        (
            ("--type", "a.b", "--data", "{"),
            "--data is not JSON: Expecting property name enclosed in double quotes at column 2\n",
        ),
        (("--type", "a.b", "--data", "@nowhere"), "No such file"),
    ],
)
def test_wrong_use_says_what_was_expected(
    a44: Command, logged_in: RestService, arguments: tuple[str, ...], told: str
) -> None:
    outcome = a44(*SEND, *arguments)
    assert (outcome.code, told in outcome.err) == (2, True)
    assert bodies(logged_in) == []


def test_a_place_that_is_the_whole_has_no_line(a44: Command, logged_in: RestService) -> None:
    problem = {"code": "E_EVENT_SCHEMA", "detail": "as a whole it is a number", "path": "", "seen": "a number"}
    logged_in.state.answers["/v1/automation/events"] = (422, json.dumps(problem).encode(), "application/problem+json")
    outcome = a44(*SEND, "--type", "order.paid", "--data", "1")
    assert "seen: a number" in outcome.err
    assert "path" not in outcome.err


def test_a_refusal_is_shown_in_its_place_and_the_rest_is_sent(
    a44: Command, logged_in: RestService, tmp_path: Path
) -> None:
    (tmp_path / "events.ndjson").write_text('{"type":"","data":1}\n{"type":"a.b","data":2}\n')
    outcome = a44(*SEND, "--file", "events.ndjson")
    assert outcome.code == 3
    assert [line.split()[1] for line in outcome.out.splitlines()] == ["422", "202"]
    records = [json.loads(line) for line in a44(*SEND, "--file", "events.ndjson", "--json").out.splitlines()]
    assert [record.get("event") for record in records] == [1, 2, None]
    assert (records[0]["code"], records[0]["http_status"]) == ("E_ENVELOPE_INVALID", 422)
    assert records[2] == {"events": 2, "deduplicated": 1, "refused": 1}


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the command would have waited."""
    waited: list[float] = []
    monkeypatch.setattr(event_files, "pause", waited.append)
    return waited


def write(tmp_path: Path, count: int, size: int = 0) -> None:
    lines = [f'{{"type":"a.b","idempotency_key":"k{n}","data":"{"x" * size}"}}' for n in range(1, count + 1)]
    (tmp_path / "events.ndjson").write_text("\n".join(lines))


def test_a_file_goes_in_batches_that_the_door_takes(a44: Command, logged_in: RestService, tmp_path: Path) -> None:
    write(tmp_path, 2_300)
    outcome = a44(*SEND, "--file", "events.ndjson")
    assert outcome.code == 0
    sent = bodies(logged_in)
    assert [body.count(b"\n") + 1 for body in sent] == [1000, 1000, 300]
    assert len(outcome.out.splitlines()) == 2_300
    assert [line.split() for line in outcome.err.splitlines()] == [["created", "2,300"], ["events", "2,300"]]
    again = a44(*SEND, "--file", "events.ndjson")
    assert again.err.splitlines()[0].split() == ["deduplicated", "2,300"]  # nothing is made twice


def test_batches_stay_under_the_doors_bound_and_one_that_cannot_goes_alone(
    a44: Command, logged_in: RestService, tmp_path: Path
) -> None:
    write(tmp_path, 5, 400_000)
    with (tmp_path / "events.ndjson").open("a") as file:
        file.write('\n{"type":"a.b","data":"' + "x" * 1_100_000 + '"}\n{"type":"a.b","data":1}')
    assert a44(*SEND, "--file", "events.ndjson").code == 0
    sent = bodies(logged_in)
    assert [body.count(b"\n") + 1 for body in sent] == [2, 2, 1, 1, 1]
    assert all(len(body) <= 1_000_000 for number, body in enumerate(sent) if number != 3)


def test_what_the_service_has_no_time_for_is_sent_again_alone(
    a44: Command, logged_in: RestService, tmp_path: Path, pauses: list[float]
) -> None:
    write(tmp_path, 4)
    logged_in.state.busy = {"k2": 2, "k3": 1}
    outcome = a44(*SEND, "--file", "events.ndjson", "--json")
    assert outcome.code == 0
    assert pauses == [7.0, 7.0]
    assert [body.count(b"\n") + 1 for body in bodies(logged_in)] == [4, 2, 1]
    told = [json.loads(line) for line in outcome.out.splitlines()]
    assert [one.get("event") for one in told] == [1, 4, 3, 2, None]
    assert told[-1] == {"events": 4, "created": 4}


def test_where_the_service_goes_away_it_says_how_far_it_came_and_goes_on_from_there(
    a44: Command, logged_in: RestService, tmp_path: Path, pauses: list[float]
) -> None:
    write(tmp_path, 1_003)
    away = prepared({"code": "E_UNAVAILABLE", "detail": "x", "retry_after": 3}, 503)
    logged_in.state.answers_after["/v1/automation/events"] = (1, away)
    outcome = a44(*SEND, "--file", "events.ndjson")
    assert outcome.code == 5
    assert pauses == [3.0] * (event_files.MOST_TRIES - 1)
    assert len(outcome.out.splitlines()) == 1_000
    assert "1000 of 1003 were sent; go on with --from 1001" in outcome.err
    logged_in.state.answers_after.clear()
    rest = a44(*SEND, "--file", "events.ndjson", "--from", "1001")
    assert [line.split()[0] for line in rest.out.splitlines()] == ["1001/1003", "1002/1003", "1003/1003"]


def test_who_interrupts_it_is_told_where_to_go_on(
    a44: Command, logged_in: RestService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(event_files, "pause", interrupted)
    write(tmp_path, 1_003)
    logged_in.state.busy = {"k1002": 1}
    outcome = a44(*SEND, "--file", "events.ndjson")
    assert outcome.code == 130
    assert "1002 of 1003 were sent; go on with --from 1001" in outcome.err  # one of them is not known to be taken


def test_an_address_where_nothing_answers_is_told_at_once(
    a44: Command, logged_in: RestService, tmp_path: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 2)
    monkeypatch.setenv("A44_URL", "http://127.0.0.1:9")
    assert a44(*SEND, "--file", "events.ndjson").code == 5
    assert pauses == []


def test_a_terminal_is_shown_how_far_it_is(
    a44: Command, logged_in: RestService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 2)
    monkeypatch.setattr(event_files, "has_colour", lambda _: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    outcome = a44(*SEND, "--file", "events.ndjson")
    assert "2/2" in outcome.err
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["1/2", "2/2"]  # a pipe gets its lines whole


def test_event_types_are_listed_and_one_is_shown_with_its_schema(a44: Command, logged_in: RestService) -> None:
    listed = a44("automation", "events", "types")
    assert (listed.code, listed.out.splitlines()[0]) == (0, "1 event type")
    assert listed.out.splitlines()[-1].split() == ["order.paid", "2", "json-schema", "backward"]
    shown = a44("automation", "events", "types", "order.paid").out.splitlines()
    assert shown[0] == "order.paid, version 2: json-schema, compatibility backward"
    assert json.loads("".join(shown[1:])) == {"type": "object"}
    assert a44("automation", "events", "types", "order.paid", "--json").document["schema"] == {"type": "object"}
    assert a44("automation", "events", "types", "--json").document[0]["version"] == 2
    assert a44("automation", "events", "types", "order.gone").code != 0
