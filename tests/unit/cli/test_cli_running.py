"""`a44 automation run` and `cancel`: the key, the exact input, waiting for the end."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import RUN, RestService, record

EXACT = '{"big": 1180591620717411303424, "one": 1.0, "text": "\\u00e9 é"}'


def start(a44: Command, *more: str, stdin: bytes = b""):
    return a44("automation", "run", "wf_x", *more, stdin=stdin)


def test_leaving_the_key_out_is_refused_with_the_platforms_code_before_anything_is_sent(
    a44: Command, logged_in: RestService
) -> None:
    outcome = start(a44, "--input", "{}")
    assert outcome.code == 3
    assert outcome.err.startswith("E_IDEMPOTENCY_KEY_REQUIRED")
    assert "--idempotency-key" in outcome.err
    assert not logged_in.state.seen
    assert start(a44, "--json").problem["code"] == "E_IDEMPOTENCY_KEY_REQUIRED"


def test_a_run_is_created_once_and_found_again(a44: Command, logged_in: RestService) -> None:
    assert start(a44, "--idempotency-key", "k").out == f"{RUN}  created\n"
    assert start(a44, "--idempotency-key", "k").out.startswith(f"{RUN}  deduplicated (key age: ")


def test_a_key_travels_as_utf_8(a44: Command, logged_in: RestService) -> None:
    assert start(a44, "--idempotency-key", "ké💥").code == 0
    told = logged_in.state.seen[-1].headers["a44-idempotency-key"]
    assert told.encode("latin-1").decode() == "ké💥"  # http.server reads headers as Latin-1


@pytest.mark.parametrize("key", ["k\nx: y", "k\x00", "k\udcff"])
def test_a_key_that_no_header_can_carry_is_refused(a44: Command, logged_in: RestService, key: str) -> None:
    outcome = start(a44, "--idempotency-key", key)
    assert (outcome.code, outcome.err.split()[0]) == (2, "E_IDEMPOTENCY_KEY_INVALID")
    assert not logged_in.state.seen


def test_a_token_with_a_line_end_is_refused_and_not_shown(
    a44: Command, logged_in: RestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A44_TOKEN", "a44_secret\n")
    outcome = start(a44, "--idempotency-key", "k")
    assert (outcome.code, outcome.err.split()[0]) == (2, "E_CREDENTIALS")
    assert "a44_secret" not in outcome.err


@pytest.mark.parametrize("source", ["argument", "file", "stdin"])
def test_the_input_travels_byte_for_byte(a44: Command, logged_in: RestService, tmp_path: Path, source: str) -> None:
    (tmp_path / "in.json").write_text(EXACT, "utf-8")
    given = {"argument": EXACT, "file": f"@{tmp_path / 'in.json'}", "stdin": "-"}[source]
    outcome = start(a44, "--input", given, "--idempotency-key", "k", "--version", "3", stdin=EXACT.encode())
    assert outcome.code == 0
    request = logged_in.state.seen[-1]
    assert request.body.decode() == f'{{"input":{EXACT},"version":"3"}}'
    assert request.headers["a44-idempotency-key"] == "k"


@pytest.mark.parametrize("given", ["{", '{"a": NaN}', "", '{} , "version": "2"', "@missing.json"])
def test_an_input_that_is_not_json_is_wrong_use_and_not_sent(a44: Command, logged_in: RestService, given: str) -> None:
    outcome = start(a44, "--input", given, "--idempotency-key", "k")
    assert outcome.code == 2
    assert "--input" in outcome.err
    assert not logged_in.state.seen


def test_waiting_for_a_run_that_succeeds_prints_its_result(a44: Command, logged_in: RestService) -> None:
    outcome = start(a44, "--idempotency-key", "k", "--wait")
    assert outcome.code == 0
    assert outcome.out.splitlines() == [f"{RUN}  succeeded", 'result  {"ok": true}']


def test_waiting_shows_steps_as_they_are_recorded_on_stderr(a44: Command, logged_in: RestService) -> None:
    logged_in.state.records = [record(1, "reserve"), record(2, "pay")]
    outcome = start(a44, "--wait", "--idempotency-key", "k")
    assert outcome.code == 0
    assert [line.split()[1] for line in outcome.err.splitlines()[1:]] == ["reserve", "pay"]
    assert outcome.out.startswith(f"{RUN}  succeeded")


def test_a_run_that_fails_ends_with_one_and_its_error(a44: Command, logged_in: RestService) -> None:
    logged_in.state.end_state = "failed"
    outcome = start(a44, "--idempotency-key", "k", "--wait", "5")
    assert outcome.code == 1
    assert "E_UPSTREAM_503" in outcome.out


def test_a_run_that_does_not_end_in_time_says_how_to_follow_it(a44: Command, logged_in: RestService) -> None:
    logged_in.state.end_state = None
    outcome = start(a44, "--idempotency-key", "k", "--wait", "0.3")
    assert outcome.code == 1
    assert f"a44 automation logs {RUN} --follow" in outcome.err
    assert outcome.out.startswith(f"{RUN}  running")


def test_waiting_ends_where_only_a_person_can_move_the_run(a44: Command, logged_in: RestService) -> None:
    logged_in.state.end_state = None
    logged_in.state.live_state = "blocked"
    logged_in.state.records = [record(1, "~run", "blocked", kind="run", error_code="E_BUNDLE_IMPORT")]
    outcome = start(a44, "--idempotency-key", "k", "--wait")
    assert outcome.code == 1
    assert outcome.out.splitlines()[:2] == [f"{RUN}  blocked", "Where it is."]
    assert "E_BUNDLE_IMPORT" in outcome.err


def test_an_old_block_does_not_end_the_waiting(a44: Command, logged_in: RestService) -> None:
    logged_in.state.records = [record(1, "~run", "blocked", kind="run"), record(2, "pay")]
    assert start(a44, "--idempotency-key", "k", "--wait").code == 0


def test_wait_with_json_is_the_runs_document_with_its_numbers_as_recorded(a44: Command, logged_in: RestService) -> None:
    logged_in.state.result_text = '{"price":1.10,"big":1180591620717411303424}'
    outcome = start(a44, "--idempotency-key", "k", "--wait", "--json")
    assert outcome.document["state"] == "succeeded"
    assert '"price":1.10' in outcome.out


@pytest.mark.parametrize("length", ["5s", "-1", "1e3"])
def test_wait_takes_what_begins_as_a_number_for_one(a44: Command, logged_in: RestService, length: str) -> None:
    outcome = start(a44, "--idempotency-key", "k", "--wait", length)
    assert outcome.code == 2
    assert f"--wait: '{length}' is not a number of seconds, such as 30" in outcome.err
    assert not logged_in.state.seen


def test_wait_takes_no_word_for_a_number(a44: Command, logged_in: RestService) -> None:
    outcome = start(a44, "--idempotency-key", "k", "--wait=soon")
    assert outcome.code == 2
    assert "--wait" in outcome.err
    assert not logged_in.state.seen


def test_cancel_tells_the_service_the_reason(a44: Command, logged_in: RestService) -> None:
    outcome = a44("automation", "cancel", RUN, "--reason", "ordered twice")
    assert outcome.out == f"{RUN}  cancelling\n"
    assert json.loads(logged_in.state.seen[-1].body) == {"reason": "ordered twice"}


def test_a_kept_connection_that_was_closed_is_opened_again(a44: Command, logged_in: RestService) -> None:
    logged_in.state.records = [record(1, "reserve")]
    logged_in.state.close_after_next = True
    assert start(a44, "--idempotency-key", "k", "--wait").code == 0


def test_a_declared_manual_trigger_may_be_named(a44: Command, logged_in: RestService) -> None:
    assert start(a44, "--idempotency-key", "k", "--trigger", "trg_by_hand", "--version", "3").code == 0
    sent = json.loads(logged_in.state.seen[-1].body)
    assert (sent["trigger"], sent["version"]) == ("trg_by_hand", "3")
