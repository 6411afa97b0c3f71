"""What a step does to the process that it shares with others is no end of theirs."""

import json
from collections.abc import Iterator

import pytest

from anthares44.automation.wire import Message
from tests.conformance.step_host import StepHost


@pytest.fixture
def host() -> Iterator[StepHost]:
    with StepHost() as running:
        for workflow in ("careless", "enumerated", "lets-a-generator-go"):
            assert running.load(workflow, entry="careless.py")["t"] == "LOADED"
        yield running


def outcome(host: StepHost, kind: str, run: str) -> Message:
    host.start("careless", json.dumps(kind), run=run)
    return host.receive(lambda message: message["t"] in ("DONE", "FAILED") and message["run"] == run)


@pytest.mark.parametrize("kind", ["exits_in_a_task", "raises_unreadable", "raises_unreadable_in_thread"])
def test_the_failure_of_a_step_is_its_own(host: StepHost, kind: str):
    host.start("careless", '"naps"', run="neighbour")
    failed = outcome(host, kind, "run_1")
    assert (failed["t"], failed["error"]["code"]) == ("FAILED", "E_STEP_FAILED")
    assert host.receive_type("DONE")["run"] == "neighbour"


@pytest.mark.parametrize("kind", ["a_proxy", "its_members_alone"])
def test_what_lets_itself_be_called_is_called_whatever_else_it_does_not_tell(host: StepHost, kind: str):
    for number in range(2):
        assert outcome(host, kind, f"run_{number}")["value"] == '"called"'


def test_a_step_that_stops_the_loop_stops_nobody(host: StepHost):
    assert outcome(host, "stops_the_loop", "run_1")["value"] == '"went on"'
    host.start("lets-a-generator-go", run="run_2")
    ended = host.receive(lambda message: message["t"] == "TURN" and message["run"] == "run_2")["ended"]
    assert ended == {"status": "succeeded", "value": "[true]"}


def test_a_heart_beats_whatever_a_step_that_blocks_has_at_hand(host: StepHost):
    host.start("careless", '"blocks_with_a_proxy"')
    beat = host.receive(lambda message: message["t"] == "BEAT" and message["blocked"] is not None)
    assert (beat["blocked"]["run"], beat["blocked"]["item"]) == ("run_1", "only")
    assert host.receive_type("DONE")["run"] == "run_1"
    host.receive(lambda message: message["t"] == "BEAT" and message["blocked"] is None)


def test_a_step_has_one_key_however_its_id_is_written(host: StepHost):
    """The executor names later attempts by the id's text."""
    host.start("enumerated")
    assert host.receive_type("TURN")["requests"][0]["item"] == "pay"
    assert json.loads(host.receive_type("DONE")["value"]) == "run_1:pay:g0"
