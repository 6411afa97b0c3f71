"""`dlq`: the guide's commands as printed, against a service of the test's own."""

import json
import shlex

from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import RestService, record

LETTER = {
    "dead_letter_id": "dlq_01J9YB2C",
    "project_id": "pj_shop",
    "queue_id": "q_invoice_settle",
    "run_id": "run_01J9XQ7M4K00000000000000AA",
    "reason": "max_attempts_exceeded",
    "error_code": "E_UPSTREAM_503",
    "summary": "step charge failed with E_UPSTREAM_503 on attempt 3",
    "redrive_count": 0,
    "source_topic": None,
    "created_at": "2026-07-19T14:02:11.884Z",
}
API = "/v1/automation/dead-letters"


def answer(service: RestService, path: str, document: object) -> None:
    service.state.answers[path] = (200, json.dumps(document).encode(), "application/json")


def words(line: str) -> list[str]:
    """A line of the guide as a shell takes it apart, without the command's own name."""
    return shlex.split(line.replace("\\\n", " "))[1:]


def test_stats_count_by_code(a44: Command, logged_in: RestService) -> None:
    code = {
        "error_code": "E_UPSTREAM_503",
        "reason": "max_attempts_exceeded",
        "count": 37,
        "redriven": 5,
        "oldest": "2026-07-19T14:02:11.884Z",
        "newest": "2026-07-19T15:02:11.884Z",
    }
    document = {"queue_id": "q_invoice_settle", "since": "2026-07-18T15:00:00Z", "total": 37, "codes": [code]}
    answer(logged_in, f"{API}/stats", document)
    outcome = a44(*words("a44 automation dlq stats q_invoice_settle --since 24h"))
    assert outcome.code == 0
    total, titles, row = outcome.out.splitlines()
    assert total == "37 dead letters in q_invoice_settle since 24h"
    assert titles.split() == ["ERROR", "REASON", "COUNT", "REDRIVEN", "OLDEST", "NEWEST"]
    assert row.split() == [
        "E_UPSTREAM_503", "max_attempts_exceeded", "37", "5", "2026-07-19", "14:02:11Z", "2026-07-19", "15:02:11Z",
    ]  # fmt: skip
    assert logged_in.state.seen[-1].query == {"queue": "q_invoice_settle", "since": "24h"}
    assert a44("automation", "dlq", "stats", "ingest", "--unowned", "--json").document == document
    assert logged_in.state.seen[-1].query == {"queue": "ingest", "unowned": "true"}


def test_what_a_record_came_with_is_shown_as_the_service_tells_it(a44: Command, logged_in: RestService) -> None:
    headers = [{"name": "ce_type", "value": "order.paid"}, {"name": "x\x1b", "value": None}]
    letter = {**LETTER, "record": {"key": "[redacted]", "headers": headers, "left_out": 2}}
    answer(logged_in, f"{API}/dlq_01J9YB2C", letter)
    outcome = a44("automation", "dlq", "show", "dlq_01J9YB2C")
    assert [line.split(maxsplit=1)[1] for line in outcome.out.splitlines() if line.startswith(("key", "header"))] == [
        "[redacted]", "ce_type: order.paid", "x\\x1b: ",
    ]  # fmt: skip
    assert "2 of key and headers were too large to keep" in outcome.err
    answer(logged_in, f"{API}/dlq_01J9YB2C", {**letter, "raw": "e30=", "raw_key": "azE=",
                                                     "raw_headers": [["ce_type", "b3JkZXI="]]})  # fmt: skip
    outcome = a44("automation", "dlq", "show", "dlq_01J9YB2C", "--whole")
    assert [line.split(maxsplit=1)[1] for line in outcome.out.splitlines() if line.startswith(("key", "header"))] == [
        "azE=", "ce_type: b3JkZXI=",
    ]  # fmt: skip
    assert "raw, key and headers are in base64" in outcome.err


def test_one_is_shown_with_its_attempts(a44: Command, logged_in: RestService) -> None:
    tried = [record(1, "charge", "failed"), record(2, "charge", "failed", attempt=2, error_code="E_UPSTREAM_503")]
    answer(logged_in, f"{API}/dlq_01J9YB2C", {**LETTER, "attempts": tried, "late_attempts": []})
    outcome = a44(*words("a44 automation dlq show dlq_01J9YB2C --with-attempts"))
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[:3] == ["dlq_01J9YB2C", LETTER["summary"], "queue     q_invoice_settle"]
    assert [line.split()[1:5] for line in lines[-2:]] == [
        ["charge", "attempt", "1", "failed"],
        ["charge", "attempt", "2", "failed"],
    ]
    assert logged_in.state.seen[-1].query == {"attempts": "true"}


def test_what_the_sender_wrote_is_asked_for_by_name(a44: Command, logged_in: RestService) -> None:
    answer(logged_in, f"{API}/dlq_01J9YB2C", {**LETTER, "envelope": {"id": "evt_1", "data": {"total": 1.10}}})
    outcome = a44("automation", "dlq", "show", "dlq_01J9YB2C", "--whole")
    assert logged_in.state.seen[-1].query == {"whole": "true"}
    assert 'envelope  {"id": "evt_1"' in outcome.out
    assert "attempts" not in logged_in.state.seen[-1].query


def test_lists_go_through_as_many_pages_as_it_takes(a44: Command, logged_in: RestService) -> None:
    answer(logged_in, API, {"dead_letters": [LETTER], "next": None})
    outcome = a44("automation", "dlq", "list", "--queue", "q_x", "--error-code", "E_UPSTREAM_503", "--since", "7d")
    assert outcome.out.splitlines()[1].split()[:2] == ["dlq_01J9YB2C", "q_invoice_settle"]
    query = logged_in.state.seen[-1].query
    assert query == {"queue": "q_x", "error_code": "E_UPSTREAM_503", "since": "7d", "limit": "50"}
    answer(logged_in, API, {"dead_letters": [LETTER], "next": LETTER["dead_letter_id"]})
    found = a44("automation", "dlq", "list", "--limit", "3", "--json").document
    assert len(found["dead_letters"]) == 3
    assert [seen.query.get("limit") for seen in logged_in.state.seen[-3:]] == ["3", "2", "1"]


def test_no_dead_letters_are_said_to_be_none(a44: Command, logged_in: RestService) -> None:
    answer(logged_in, API, {"dead_letters": [], "next": None})
    outcome = a44("automation", "dlq", "list")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "no dead letters\n")


ORDERED = {
    "redrive_id": "rdv_1",
    "queue_id": "q_invoice_settle",
    "scanned": 40,
    "matched": 39,
    "letters": 37,
    "left": 0,
    "skipped": {"too_old": 2},
    "rate": 20.0,
    "seconds": 2,
    "examples": ["dlq_01J9YB2C"],
    "warnings": ["3 were redriven twice or more"],
}


def test_the_guides_redrive_runs_as_printed(a44: Command, logged_in: RestService) -> None:
    answer(logged_in, f"{API}/redrive", ORDERED)
    outcome = a44(
        *words(
            "a44 automation dlq redrive q_invoice_settle \\\n"
            "  --filter \"error_code == 'E_UPSTREAM_503'\" \\\n"
            "  --rate 20/s --max 5000"
        )
    )
    assert outcome.code == 0
    assert outcome.out.splitlines() == ["rdv_1  37 letters of q_invoice_settle: 20 a second, 2.0s", "  dlq_01J9YB2C"]
    assert outcome.err.splitlines() == [
        "the first of them:",
        "2 skipped: too old",
        "warning: 3 were redriven twice or more",
    ]
    assert json.loads(logged_in.state.seen[-1].body) == {
        "queue": "q_invoice_settle",
        "filter": "error_code == 'E_UPSTREAM_503'",
        "max": 5000,
        "rate": "20/s",
        "reason": "",
        "dry_run": False,
        "allow_stale": False,
    }


def test_a_dry_run_and_its_reason_are_the_services_to_judge(a44: Command, logged_in: RestService) -> None:
    answer(logged_in, f"{API}/redrive", {**ORDERED, "redrive_id": None, "left": 5})
    told = ("--filter", "true", "--max", "37", "--dry-run", "--allow-stale", "--reason", "mended")
    outcome = a44("automation", "dlq", "redrive", "q_x", *told)
    assert outcome.out.startswith("37 letters of q_x would be redriven: 20 a second")
    assert "5 more match; --max takes more" in outcome.err
    body = json.loads(logged_in.state.seen[-1].body)
    assert (body["dry_run"], body["allow_stale"], body["reason"], body["rate"]) == (True, True, "mended", "10/s")
    assert a44("automation", "dlq", "redrive", "q_x", *told, "--json").document["left"] == 5


def test_a_redrive_without_a_filter_or_a_number_is_not_sent(a44: Command, logged_in: RestService) -> None:
    for told in (("--max", "5"), ("--filter", "true"), ("--filter", "true", "--max", "0")):
        assert a44("automation", "dlq", "redrive", "q_x", *told).code == 2
    assert logged_in.state.seen == []


def test_a_refusal_tells_the_place_in_the_filter(a44: Command, logged_in: RestService) -> None:
    problem = {
        "code": "E_EXPRESSION",
        "title": "An expression cannot be compiled or evaluated",
        "status": 422,
        "detail": "found no matching overload",
        "place": {"file": "filter", "line": 1, "column": 12},
    }
    logged_in.state.answers[f"{API}/redrive"] = (422, json.dumps(problem).encode(), "application/problem+json")
    outcome = a44("automation", "dlq", "redrive", "q_x", "--filter", "error_code == 503", "--max", "5")
    assert outcome.code == 3
    assert "filter:1:12: found no matching overload" in outcome.err


ORDER = {
    "redrive_id": "rdv_1", "queue_id": "q_invoice_settle", "state": "stopped", "letters": 37, "redriven": 12,
    "refused": 1, "waiting": 0, "rate": 20.0, "operator": "tok_maria", "reason": "INC-2214",
    "created_at": "2026-07-19T14:02:11Z",
}  # fmt: skip


def test_orders_are_listed_with_their_progress(a44: Command, logged_in: RestService) -> None:
    answer(logged_in, f"{API}/redrives", {"redrives": [{**ORDER, "state": "under_way", "waiting": 24}], "next": None})
    outcome = a44("automation", "dlq", "redrives", "--under-way")
    titles, row = outcome.out.splitlines()
    assert titles.split() == ["REDRIVE", "QUEUE", "STATE", "DONE", "RATE", "OPERATOR", "REASON", "CREATED"]
    assert row.split()[:9] == ["rdv_1", "q_invoice_settle", "under_way", "12", "of", "37,", "1", "could", "not"]
    assert logged_in.state.seen[-1].query == {"under_way": "true", "limit": "50"}
    assert a44("automation", "dlq", "redrives", "--json").document["redrives"][0]["waiting"] == 24
    answer(logged_in, f"{API}/redrives", {"redrives": [], "next": None})
    assert a44("automation", "dlq", "redrives").err == "no redrives\n"


def test_one_is_stopped_and_what_is_left_is_told(a44: Command, logged_in: RestService) -> None:
    answer(logged_in, f"{API}/redrives/rdv_1/stop", ORDER)
    outcome = a44("automation", "dlq", "stop", "rdv_1", "--reason", "the wrong ones")
    assert (outcome.code, outcome.out) == (0, "rdv_1  stopped: 12 of 37, 1 could not\n")
    assert outcome.err == "24 letters wait in the dead letters as before\n"
    assert json.loads(logged_in.state.seen[-1].body) == {"reason": "the wrong ones"}
    assert a44("automation", "dlq", "stop", "rdv_1", "--json").document == ORDER
    answer(logged_in, f"{API}/redrives/rdv_1/stop", {**ORDER, "state": "done", "redriven": 36})
    assert "nothing was left to stop" in a44("automation", "dlq", "stop", "rdv_1").err
