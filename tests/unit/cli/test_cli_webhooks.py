"""`a44 automation webhook`: exact bytes, a signature for each try, the service's decision shown."""

import hashlib
import hmac
import json
import re
import time
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import PROJECT, RUN, SECRET, RestService

BODY = b'{ "amount": 1.0,\n "big": 1180591620717411303424 }\n'


@pytest.fixture
def payload(tmp_path: Path) -> str:
    path = tmp_path / "payload.json"
    path.write_bytes(BODY)
    return str(path)


def send(a44: Command, payload: str, *more: str, stdin: bytes = b""):
    return a44("automation", "webhook", "send", "--trigger", "trg_x", "--file", payload, *more, stdin=stdin)


def test_a_repeated_send_shows_one_run_and_the_age_of_its_key(
    a44: Command, logged_in: RestService, payload: str
) -> None:
    outcome = send(a44, payload, "--idempotency-key", "erp:ord_991:shipped:v1", "--repeat", "2")
    first, second = outcome.out.splitlines()
    assert first == f"1/2  202 {RUN}   created"
    assert re.fullmatch(rf"2/2  200 {RUN}   deduplicated \(key age: \d+(\.\d)?m?s\)", second)
    assert (outcome.code, outcome.err) == (0, "")


def test_the_bytes_of_the_file_arrive_unchanged_and_each_try_is_signed_anew(
    a44: Command, logged_in: RestService, payload: str
) -> None:
    send(a44, payload, "--idempotency-key", "k", "--repeat", "3")
    hooks = [seen for seen in logged_in.state.seen if seen.path == f"/v1/{PROJECT}/trg_x"]
    signatures = [seen for seen in logged_in.state.seen if seen.path.endswith("/sign")]
    assert [seen.body for seen in hooks] == [BODY] * 3
    assert len(signatures) == 3
    assert all("authorization" not in seen.headers for seen in hooks)


def test_a_wrong_signature_is_sent_as_it_is_and_its_refusal_shown(
    a44: Command, logged_in: RestService, payload: str
) -> None:
    outcome = send(a44, payload, "--signature", "00" * 32)
    assert outcome.code == 3
    assert outcome.out.startswith("1/1  401 E_SIGNATURE   ")
    assert not [path for path in logged_in.state.paths() if path.endswith("/sign")]


def test_an_old_timestamp_with_its_own_signature_is_sent_as_it_is(
    a44: Command, logged_in: RestService, payload: str
) -> None:
    old = str(int(time.time()) - 600)
    signature = hmac.new(SECRET, old.encode() + b"." + BODY, hashlib.sha256).hexdigest()
    outcome = send(a44, payload, "--signature", signature, "--timestamp", old)
    assert outcome.code == 3
    assert outcome.out.startswith("1/1  408 E_TIMESTAMP_SKEW   ")


def test_a_timestamp_alone_is_signed_for_and_refused_by_the_clock(
    a44: Command, logged_in: RestService, payload: str
) -> None:
    outcome = send(a44, payload, "--timestamp", "1000000000")
    assert outcome.out.startswith("1/1  408 E_TIMESTAMP_SKEW   ")


def test_json_is_one_line_for_each_try_also_for_refusals(a44: Command, logged_in: RestService, payload: str) -> None:
    accepted = send(a44, payload, "--idempotency-key", "k", "--repeat", "2", "--json")
    lines = [json.loads(line) for line in accepted.out.splitlines()]
    assert [(line["try"], line["http_status"], line["status"]) for line in lines] == [
        (1, 202, "created"),
        (2, 200, "deduplicated"),
    ]
    refused = send(a44, payload, "--signature", "ff", "--json")
    assert json.loads(refused.out)["code"] == "E_SIGNATURE"
    assert refused.code == 3


def test_the_body_may_come_from_stdin(a44: Command, logged_in: RestService) -> None:
    outcome = send(a44, "-", "--idempotency-key", "k", stdin=BODY)
    assert outcome.code == 0
    assert logged_in.state.seen[-1].body == BODY


def test_sign_prints_headers_alone_on_stdout(a44: Command, logged_in: RestService, payload: str) -> None:
    outcome = a44("automation", "webhook", "sign", "--trigger", "trg_x", "--file", payload)
    stamp, signature = (line.split(": ") for line in outcome.out.splitlines())
    assert (stamp[0], signature[0]) == ("A44-Timestamp", "A44-Signature")
    expected = hmac.new(SECRET, stamp[1].encode() + b"." + BODY, hashlib.sha256).hexdigest()
    assert signature[1] == expected
    assert "absent" in outcome.err
    assert SECRET.hex() not in outcome.out + outcome.err


def test_sign_repeats_the_key_that_it_is_given(a44: Command, logged_in: RestService, payload: str) -> None:
    outcome = a44(
        "automation", "webhook", "sign", "--trigger", "trg_x", "--file", payload, "--idempotency-key", "k", "--json"
    )
    assert outcome.document["A44-Idempotency-Key"] == "k"


def test_an_unknown_trigger_is_not_found(a44: Command, logged_in: RestService, payload: str) -> None:
    outcome = a44("automation", "webhook", "send", "--trigger", "trg_none", "--file", payload)
    assert outcome.code == 4
    assert "E_TRIGGER_NOT_FOUND" in outcome.err


def test_a_file_that_cannot_be_read_is_wrong_use(a44: Command, logged_in: RestService) -> None:
    outcome = send(a44, "nowhere.json")
    assert outcome.code == 2
    assert "nowhere.json" in outcome.err
    assert not logged_in.state.seen


def test_the_hook_path_of_a_given_signature_asks_the_service_for_the_project(
    a44: Command, logged_in: RestService, payload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("A44_PROJECT")
    send(a44, payload, "--signature", "00")
    assert logged_in.state.paths() == [f"/v1/{PROJECT}/trg_x"]


def test_a_service_that_goes_away_between_tries_ends_the_command(
    a44: Command, logged_in: RestService, payload: str
) -> None:
    logged_in.state.answers[f"/v1/{PROJECT}/trg_x"] = (503, b"<html>", "text/html")
    outcome = send(a44, payload, "--repeat", "2")
    assert outcome.code == 5
    assert outcome.out.startswith("1/2  503 E_UNAVAILABLE   ")


def test_a_rotation_prints_the_new_secret_alone_on_stdout_and_how_long_the_old_one_lives(
    a44: Command, logged_in: RestService
) -> None:
    outcome = a44("automation", "webhook", "rotate", "trg_erp_sync")
    assert (outcome.code, outcome.out) == (0, f"{2:064x}\n")
    assert "shown this once" in outcome.err
    assert "the old one is accepted until 2026-12-02" in outcome.err
    assert logged_in.state.paths() == ["/v1/automation/triggers/trg_erp_sync/rotate"]


def test_a_second_rotation_is_refused_until_it_says_what_may_end(a44: Command, logged_in: RestService) -> None:
    a44("automation", "webhook", "rotate", "trg_x")
    refused = a44("automation", "webhook", "rotate", "trg_x", "--json")
    assert (refused.code, refused.problem["code"]) == (3, "E_ROTATION_UNDERWAY")
    ended = a44("automation", "webhook", "rotate", "trg_x", "--end", "old")
    assert "no other secret is accepted any more" in ended.err
    assert json.loads(logged_in.state.seen[-1].body) == {"end": "old"}


def test_a_rotation_as_json_is_the_service_s_answer(a44: Command, logged_in: RestService) -> None:
    document = a44("automation", "webhook", "rotate", "trg_x", "--json").document
    assert set(document) == {"trigger_id", "path", "secret", "secret_number", "old_secret_ends_at"}


def test_the_headers_of_another_sender_are_printed_and_sent_as_the_service_made_them(
    a44: Command, logged_in: RestService, payload: str
) -> None:
    headers = {"X-GitHub-Delivery": "72d3162e", "X-Hub-Signature-256": "sha256=00"}
    answer = json.dumps({**headers, "path": f"/v1/{PROJECT}/trg_x"}).encode()
    logged_in.state.answers["/v1/automation/triggers/trg_x/sign"] = (200, answer, "application/json")
    signed = a44("automation", "webhook", "sign", "--trigger", "trg_x", "--file", payload)
    assert (signed.out, signed.err) == ("X-GitHub-Delivery: 72d3162e\nX-Hub-Signature-256: sha256=00\n", "")
    send(a44, payload, "--idempotency-key", "mine")
    asked, hooked = logged_in.state.seen[-2:]
    assert asked.query == {"key": "mine"}
    assert (hooked.headers["x-github-delivery"], hooked.headers["x-hub-signature-256"]) == ("72d3162e", "sha256=00")
    assert not [name for name in hooked.headers if name.startswith("a44-")]
