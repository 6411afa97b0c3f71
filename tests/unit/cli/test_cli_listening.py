"""`a44 automation webhook listen`: what becomes a run is posted on, the same bytes, signed anew, under the same key."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ops.cli import listening
from ops.client.stream import StreamEvent
from schemas.errors import Unavailable
from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import PROJECT, RUN, RestService

TAKEN = {"run_id": RUN, "state": "running", "trigger_id": "trg_x"}
BODY = b'{ "amount": 1.0, "big": 1180591620717411303424 }'


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_PAUSE", 0.01)


@contextmanager
def arriving(service: RestService, body: bytes = BODY) -> Iterator[None]:
    """Two runs come, of which one is the trigger's; the stream tells it twice, as that of a redriven event would."""
    runs = [{**TAKEN, "run_id": RUN.replace("AA", "BB"), "trigger_id": "trg_other"}, TAKEN]
    event = json.dumps({"event_id": "evt_1", "idempotency_key": "erp:ord_991:v1", "runs": runs})
    told = "id: 1:1:.1\nevent: begin\ndata: {}\n\n" + f"id: 1:1:.2\nevent: event\ndata: {event}\n\n" * 2
    answers = service.state.answers
    answers["/v1/automation/events"] = (200, told.encode(), "text/event-stream")
    answers[f"/v1/automation/runs/{RUN}"] = (
        200,
        b'{"run_id":"%s","input":%s}' % (RUN.encode(), body),
        "application/json",
    )
    yield
    assert service.state.seen[-1].path != "/v1/automation/events"


def listen(a44: Command, to: str, *more: str):
    return a44("automation", "webhook", "listen", "--trigger", "trg_x", "--forward-to", to, "--max", "1", *more)


def test_a_new_run_s_body_is_posted_on_with_a_signature_that_fits_and_its_key(
    a44: Command, logged_in: RestService
) -> None:
    door = f"/v1/{PROJECT}/trg_x"
    with arriving(logged_in):
        outcome = listen(a44, logged_in.url + door)
    assert (outcome.code, outcome.out) == (0, f"{RUN}  202\n")
    assert "listening for trg_x" in outcome.err
    assert next(seen.query for seen in logged_in.state.seen if seen.path.endswith("/events")) == {"trigger": "trg_x"}
    [posted] = [seen for seen in logged_in.state.seen if seen.path == door]
    assert posted.body == BODY
    assert posted.headers["a44-idempotency-key"] == "erp:ord_991:v1"
    assert "authorization" not in posted.headers


@pytest.mark.parametrize(
    ("verify", "stored", "asked"),
    [
        ("a44", "k1", "k1"),
        ("a44", f"body:trg_x:{'0' * 64}", None),
        ("github", "trg_x:72d3162e", "72d3162e"),
        ("github", f"body:trg_x:{'0' * 64}", None),
        ("stripe", "trg_x:evt_1", None),
    ],
)
def test_the_key_is_given_as_its_sender_gave_it(verify: str, stored: str, asked: str | None) -> None:
    assert listening._key({"trigger_id": "trg_x", "verify": verify}, {"idempotency_key": stored}) == asked


def test_a_run_is_posted_once_however_often_its_event_is_told_and_a_cut_stream_goes_on(
    a44: Command, logged_in: RestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def tail(_: object, filters: dict[str, str], last_id: str = "") -> Iterator[StreamEvent]:
        asked.append(last_id)
        if len(asked) == 2:
            raise Unavailable("E_UNAVAILABLE", "the service is away")
        if len(asked) == 4:
            raise KeyboardInterrupt
        runs = [{"run_id": RUN, "trigger_id": "trg_x"}]
        yield StreamEvent("event", f"1:1:.{len(asked)}", json.dumps({"idempotency_key": "k", "runs": runs}))

    monkeypatch.setattr("ops.client.rest.Client.tail", tail)
    with arriving(logged_in):
        door = f"/v1/{PROJECT}/trg_x"
        outcome = a44("automation", "webhook", "listen", "--trigger", "trg_x", "--forward-to", logged_in.url + door)
    assert asked == ["", "1:1:.1", "1:1:.1", "1:1:.3"]
    assert outcome.out == f"{RUN}  202\n"
    assert outcome.err.count("the service is away") == 1


def test_an_address_that_is_away_is_said_and_costs_its_delivery(a44: Command, logged_in: RestService) -> None:
    with arriving(logged_in):
        outcome = listen(a44, "http://127.0.0.1:1/hooks", "--json")
    assert outcome.code == 0
    told = json.loads(outcome.out)
    assert told["run_id"] == RUN
    assert "refuses connections" in told["reason"]


def test_a_body_in_storage_is_named_and_not_posted(a44: Command, logged_in: RestService) -> None:
    stored = b'{"data_ref":"20260719/dev/9c17","data_size":300000,"data_sha256":"9c17"}'
    with arriving(logged_in, stored):
        outcome = listen(a44, f"{logged_in.url}/v1/{PROJECT}/trg_x")
    assert "lies in storage" in outcome.out
    assert f"/v1/{PROJECT}/trg_x" not in logged_in.state.paths()


def test_an_address_or_a_trigger_that_cannot_be_is_refused_before_anything(
    a44: Command, logged_in: RestService
) -> None:
    assert listen(a44, "ftp://x").code == 2
    missing = a44("automation", "webhook", "listen", "--trigger", "trg_no", "--forward-to", logged_in.url)
    assert missing.code == 4
    assert "E_TRIGGER_NOT_FOUND" in missing.err
