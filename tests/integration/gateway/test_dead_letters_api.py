"""Dead letters over HTTP: who sees which, what is told unasked, and that whole ones are read under audit."""

import base64
import json
import time

import psycopg
import pytest

from processors.ports.streams import Record
from processors.ports.tokens import DEAD_LETTERS, OPERATOR, READ
from schemas.framing import Headers
from schemas.ids import new_event_id, run_id
from schemas.kept_records import kept
from tests.integration.gateway.conftest import PROJECT, Gateway
from tests.integration.gateway.histories import insert_ended, record

API = "/v1/automation/dead-letters"
RUN = run_id(PROJECT, new_event_id(int(time.time() * 1000)), "trg_test", 1)
RECORD = b'{"data": {"card": "4111"'
_LETTER = """
insert into automation.dead_letters (
    dead_letter_id, project_id, queue_id, run_id, reason, error_code, summary, envelope, raw, source_topic,
    source_partition, source_offset, created_at)
values (%s, %s, %s, %s, %s, %s, 'one sentence', %s, %s, %s, %s, %s, clock_timestamp() - make_interval(hours => %s))
"""


async def bury(
    gateway: Gateway,
    letter: str,
    *,
    project: str | None = PROJECT,
    queue: str = "q_default",
    run: str | None = RUN,
    code: str = "E_UPSTREAM_503",
    hours: int = 0,
) -> None:
    is_record = run is None
    envelope, raw = (None, RECORD) if is_record else ('{"id":"evt_1","data":{"total":1.10}}', None)
    place = ("a44.events.v1", 3, 41) if is_record else (None, None, None)
    reason = "undecodable" if is_record else "max_attempts_exceeded"
    async with await psycopg.AsyncConnection.connect(gateway.dsn) as conn:
        await conn.execute(_LETTER, (letter, project, queue, run, reason, code, envelope, raw, *place, hours))


@pytest.fixture
async def reader(gateway: Gateway) -> str:
    return await gateway.tokens.create_token(PROJECT, "panel", [READ])


@pytest.fixture
async def operator(gateway: Gateway) -> str:
    return await gateway.tokens.create_token(PROJECT, "operator", [READ, DEAD_LETTERS, OPERATOR])


async def test_stats_group_by_code_within_a_span(gateway: Gateway, reader: str) -> None:
    for number in range(3):
        await bury(gateway, f"dlq_{number}", hours=number)
    await bury(gateway, "dlq_old", hours=48)
    await bury(gateway, "dlq_declined", code="E_CARD_DECLINED")
    await bury(gateway, "dlq_elsewhere", queue="q_other")
    await bury(gateway, "dlq_theirs", project="pj_other")
    answer = await gateway.call("GET", f"{API}/stats?queue=q_default&since=24h", token=reader)
    assert answer.status == 200
    assert (answer.body["queue_id"], answer.body["total"]) == ("q_default", 4)
    assert [(one["error_code"], one["count"]) for one in answer.body["codes"]] == [
        ("E_UPSTREAM_503", 3),
        ("E_CARD_DECLINED", 1),
    ]
    assert (await gateway.call("GET", f"{API}/stats?queue=q_default", token=reader)).body["total"] == 5


async def test_a_queue_that_does_not_exist_is_not_a_queue_without_dead_letters(gateway: Gateway, secret: str) -> None:
    assert (await gateway.call("GET", f"{API}/stats?queue=q_default")).body["total"] == 0
    assert (await gateway.call("GET", f"{API}?queue=q_default")).body["dead_letters"] == []
    for address in (f"{API}/stats", API):
        answer = await gateway.call("GET", f"{address}?queue=q_defualt")
        assert (answer.status, answer.code) == (400, "E_INVALID_PARAMETER")
        assert "did you mean `q_default`" in answer.body["detail"]
    assert (await gateway.call("GET", f"{API}/stats")).code == "E_INVALID_PARAMETER"


async def test_pages_hold_each_letter_once_newest_first(gateway: Gateway, reader: str) -> None:
    for number in range(5):
        await bury(gateway, f"dlq_{number}", hours=number)
    await bury(gateway, "dlq_theirs", project="pj_other")
    await bury(gateway, "dlq_declined", code="E_CARD_DECLINED", hours=9)
    seen, after = [], ""
    while after is not None:
        page = await gateway.call("GET", f"{API}?queue=q_default&limit=2&after={after}", token=reader)
        seen += [one["dead_letter_id"] for one in page.body["dead_letters"]]
        after = page.body["next"]
    assert seen == [*(f"dlq_{number}" for number in range(5)), "dlq_declined"]
    declined = (await gateway.call("GET", f"{API}?error_code=E_CARD_DECLINED", token=reader)).body["dead_letters"]
    assert [one["dead_letter_id"] for one in declined] == ["dlq_declined"]
    assert "4111" not in json.dumps(declined)
    assert not {"envelope", "raw"} & declined[0].keys()


async def test_one_is_told_by_code_and_with_the_attempts_of_its_run(gateway: Gateway, reader: str) -> None:
    await bury(gateway, "dlq_1")
    await insert_ended(gateway.dsn, RUN, project=PROJECT, state="failed")
    await record(gateway.dsn, RUN, ("charge", "failed"), ("charge", "failed"))
    plain = (await gateway.call("GET", f"{API}/dlq_1", token=reader)).body
    assert (plain["reason"], plain["error_code"], plain["run_id"]) == ("max_attempts_exceeded", "E_UPSTREAM_503", RUN)
    assert not {"envelope", "raw", "attempts"} & plain.keys()
    full = (await gateway.call("GET", f"{API}/dlq_1?attempts=true", token=reader)).body
    assert [(one["step_id"], one["error_code"]) for one in full["attempts"]] == [("charge", "E_UPSTREAM_503")] * 2
    assert full["late_attempts"] == []


async def test_what_a_letter_keeps_needs_a_scope_of_its_own_and_each_read_is_written_down(
    gateway: Gateway, operator: str
) -> None:
    await bury(gateway, "dlq_1")
    await bury(gateway, "dlq_record", run=None, queue="ingest", code="E_FILTER_ERROR")
    refused = await gateway.call("GET", f"{API}/dlq_1?whole=true")
    assert (refused.status, refused.code) == (403, "E_SCOPE")
    assert await gateway.rows("select from automation.audit_log where action = 'dead_letter.read'") == []
    async with gateway.session.get(
        f"{gateway.url}{API}/dlq_1?whole=true", headers={"Authorization": f"Bearer {operator}"}
    ) as response:
        assert '"envelope":{"id":"evt_1","data":{"total":1.10}}' in await response.text()
    answer = await gateway.call("GET", f"{API}/dlq_record?whole=true", token=operator)
    assert base64.b64decode(answer.body["raw"]) == RECORD
    assert (answer.body["source_partition"], answer.body["source_offset"]) == (3, 41)
    (actor,) = await gateway.rows("select token_id from automation.tokens where name = 'operator'")
    written = await gateway.rows(
        "select project_id, actor, subject from automation.audit_log"
        " where action = 'dead_letter.read' order by audit_id"
    )
    assert written == [
        {"project_id": PROJECT, "actor": actor["token_id"], "subject": subject} for subject in ("dlq_1", "dlq_record")
    ]


@pytest.mark.parametrize("query", ["", "?whole=true", "?attempts=true"])
async def test_b09_dead_letters_of_another_project_do_not_exist(gateway: Gateway, operator: str, query: str) -> None:
    await bury(gateway, "dlq_theirs", project="pj_other")
    for letter in ("dlq_theirs", "dlq_nobody", "dlq_%00"):
        answer = await gateway.call("GET", f"{API}/{letter}{query}", token=operator)
        assert (answer.status, answer.code) == (404, "E_DEAD_LETTER_NOT_FOUND")
    assert await gateway.rows("select from automation.audit_log where action = 'dead_letter.read'") == []


async def test_what_belongs_to_no_project_is_seen_by_operators_only(
    gateway: Gateway, reader: str, operator: str
) -> None:
    await bury(gateway, "dlq_lost", project=None, run=None, queue="ingest", code="E_ENVELOPE_INVALID")
    await bury(gateway, "dlq_ours", run=None, queue="ingest", code="E_FILTER_ERROR")
    for token in (reader, operator):
        ours = (await gateway.call("GET", f"{API}?queue=ingest", token=token)).body["dead_letters"]
        assert [one["dead_letter_id"] for one in ours] == ["dlq_ours"]
    for path in (f"{API}?unowned=true", f"{API}/stats?queue=ingest&unowned=true"):
        assert (await gateway.call("GET", path, token=reader)).code == "E_SCOPE"
    assert (await gateway.call("GET", f"{API}/dlq_lost", token=reader)).code == "E_DEAD_LETTER_NOT_FOUND"
    lost = (await gateway.call("GET", f"{API}?unowned=true", token=operator)).body["dead_letters"]
    assert [one["dead_letter_id"] for one in lost] == ["dlq_lost"]
    assert (await gateway.call("GET", f"{API}/stats?queue=ingest&unowned=true", token=operator)).body["total"] == 1
    whole = await gateway.call("GET", f"{API}/dlq_lost?whole=true", token=operator)
    assert base64.b64decode(whole.body["raw"]) == RECORD


async def test_parameters_that_make_no_sense_are_refused_by_name(gateway: Gateway) -> None:
    for query, name in (("since=yesterday", "since"), ("limit=0", "limit"), ("unowned=perhaps", "unowned")):
        answer = await gateway.call("GET", f"{API}?queue=q_default&{query}")
        assert (answer.status, answer.code) == (400, "E_INVALID_PARAMETER")
        assert name in answer.body["detail"]
    assert (await gateway.call("GET", f"{API}/dlq_1?whole=x")).code == "E_INVALID_PARAMETER"


async def test_h05_key_and_headers_of_a_record_are_shown_hidden_and_whole_to_whom_may_see_that(
    gateway: Gateway, reader: str, operator: str
) -> None:
    await bury(gateway, "dlq_record", run=None, queue="ingest", code="E_FILTER_ERROR")
    headers: Headers = (("ce_type", b"order.paid"), ("x-api-key", b"k-4111"), ("ce_subject", b"Maria"))
    found = kept(Record("a44.events.v1", 3, 41, b"customer-7", RECORD, headers, 0))
    await gateway.rows(
        "update automation.dead_letters set record_key = %s, record_headers = %s", found.key, found.headers
    )
    shown = (await gateway.call("GET", f"{API}/dlq_record", token=reader)).body
    assert shown["record"] == {
        "key": "[redacted]",
        "headers": [
            {"name": "ce_type", "value": "order.paid"},
            {"name": "x-api-key", "value": "[redacted]"},
            {"name": "ce_subject", "value": "[redacted]"},
        ],
        "left_out": 0,
    }
    assert not {"raw_key", "raw_headers", "record_key", "record_headers"} & shown.keys()
    whole = (await gateway.call("GET", f"{API}/dlq_record?whole=true", token=operator)).body
    assert base64.b64decode(whole["raw_key"]) == b"customer-7"
    assert [(name, base64.b64decode(value)) for name, value in whole["raw_headers"]] == list(headers)
