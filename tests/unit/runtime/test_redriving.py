"""Which letters an order takes: the filter, the causes for leaving one, the count, the rate."""

from datetime import UTC, datetime
from typing import Any

import pytest

from processors.ports.redrives import Candidate, DueRedrive, WaitingLetter
from processors.runtime.redriving import MOST_REDRIVES, Plan, Rules, letter_filter, letters_a_second, step_of
from schemas.errors import Refused
from tests.unit.gateway.catalogs import PROJECT, snapshot_of

FILES = {
    "orders.yaml": """
name: orders
version: 1
steps: [{id: nap, uses: sleep, duration: 1s}]
""",
    "triggers.yaml": """
triggers:
  - {id: trg_orders, type: event, event: order.paid, workflow: wf_orders}
  - {id: trg_fresh, type: event, event: order.fresh, workflow: wf_orders, deliver: {maxAge: 6h}}
""",
}
SNAPSHOT = snapshot_of(FILES)
NOW = datetime(2026, 7, 19, 21, tzinfo=UTC)
ENVELOPE = (
    '{"id":"evt_1","type":"order.paid","idempotency_key":"k","partition_key":"p","occurred_at":"2026-07-19T14:00:00Z",'
    '"project_id":"shop","data":{"total":7,"big":1180591620717411303424}}'
)


def letter(name: str = "dlq_1", **fields: Any) -> Candidate:
    told: dict[str, Any] = {
        "dead_letter_id": name,
        "run_id": "run_1",
        "workflow_id": "wf_orders",
        "trigger_id": "trg_orders",
        "reason": "max_attempts_exceeded",
        "error_code": "E_UPSTREAM_503",
        "redrive_count": 0,
        "created_at": datetime(2026, 7, 19, 15, tzinfo=UTC),
        "envelope": ENVELOPE,
    }
    return Candidate(**{**told, **fields})


def plan(text: str = "true", most: int = 10, *, allow_stale: bool = False) -> Plan:
    return Plan(letter_filter(text), most, Rules(SNAPSHOT, PROJECT, NOW, allow_stale))


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("error_code == 'E_UPSTREAM_503'", True),
        ("error_code == 'E_CARD_DECLINED'", False),
        ("error_code.startsWith('E_UPSTREAM_') && redrive_count == 0", True),
        ("data.total > 5", True),
        ("data.total > 9", False),
        ("data.absent > 9", False),
        ("event.type == 'order.paid' && workflow_id == 'wf_orders'", True),
        ("timestamp(created_at) > timestamp('2026-07-19T14:30:00Z')", True),
        ("created_at < '2026-07-19'", False),
        ("reason in ['permanent_error']", False),
    ],
)
def test_a_filter_asks_what_a_letter_tells(text: str, taken: bool) -> None:
    made = plan(text)
    made.look_at([letter()])
    assert (made.matched, made.letters) == ((1, ["dlq_1"]) if taken else (0, []))


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("error_code == 503", 1, 12),
        ("error == 'E_UPSTREAM_503'", 1, 1),
        ("redrive_count < 2 &&\n  error_code == 503", 2, 14),
        ("error_code == 'x", 1, 15),
        ("error_code", 1, 1),
        ("", 1, 1),
        ("  ", 1, 1),
    ],
)
def test_a_mistake_in_a_filter_is_told_with_its_line_and_column(text: str, line: int, column: int) -> None:
    with pytest.raises(Refused) as refused:
        letter_filter(text)
    assert refused.value.code == "E_EXPRESSION"
    assert refused.value.place is not None
    assert (refused.value.place.line, refused.value.place.column) == (line, column)


def test_what_cannot_be_compared_is_counted_and_not_taken() -> None:
    made = plan("data.total > 'x'")
    made.look_at([letter(), letter("dlq_2", envelope=ENVELOPE.replace('"total":7', '"total":"y"'))])
    assert made.skipped == {"E_FILTER_ERROR": 1}
    assert made.letters == ["dlq_2"]


def test_envelopes_are_read_only_where_the_filter_looks_into_them() -> None:
    assert plan("data.total > 5").needs_envelopes
    assert plan("event.type == 'x'").needs_envelopes
    made = plan("error_code != 'x'", allow_stale=True)
    assert not made.needs_envelopes
    made.look_at([letter(envelope=None)])
    assert made.letters == ["dlq_1"]


def test_why_a_letter_is_left_is_counted_by_cause() -> None:
    made = plan()
    made.look_at(
        [
            letter("dlq_record", run_id=None, workflow_id=None),
            letter("dlq_filter", run_id=None, error_code="E_FILTER_ERROR"),
            letter("dlq_often", redrive_count=MOST_REDRIVES),
            letter("dlq_stale", reason="event_too_old"),
            letter("dlq_unpublished", workflow_id="wf_gone"),
            letter("dlq_good"),
        ]
    )
    assert made.skipped == {"never_accepted": 1, "redriven_too_often": 1, "too_old": 1, "not_published": 1}
    assert (made.matched, made.letters) == (6, ["dlq_filter", "dlq_good"])


def test_g08_an_event_that_was_too_old_is_taken_only_where_that_is_said() -> None:
    stale = letter(reason="event_too_old", error_code="E_EVENT_TOO_OLD")
    for allowed in (False, True):
        made = plan(allow_stale=allowed)
        made.look_at([stale])
        assert (made.letters, made.skipped) == ((["dlq_1"], {}) if allowed else ([], {"too_old": 1}))


def test_g08_an_event_that_has_grown_too_old_meanwhile_is_not_run_by_the_way() -> None:
    died_of_something_else = [letter(trigger_id="trg_fresh"), letter("dlq_2")]
    made = plan("error_code == 'E_UPSTREAM_503'")
    assert made.needs_envelopes
    made.look_at(died_of_something_else)
    assert (made.letters, made.skipped) == (["dlq_2"], {"too_old": 1})
    allowed = plan("error_code == 'E_UPSTREAM_503'", allow_stale=True)
    allowed.look_at(died_of_something_else)
    assert allowed.letters == ["dlq_1", "dlq_2"]


def test_g07_from_the_second_redrive_on_there_is_a_warning_and_after_the_fifth_none_is_made() -> None:
    made = plan()
    made.look_at([letter(f"dlq_{count}", redrive_count=count) for count in range(MOST_REDRIVES + 2)])
    assert made.often == MOST_REDRIVES - 2
    assert made.skipped == {"redriven_too_often": 2}


def test_the_oldest_are_taken_up_to_the_most_and_the_others_are_counted() -> None:
    made = plan(most=3)
    made.look_at([letter(f"dlq_{number}") for number in range(4)])
    made.look_at([letter(f"dlq_{number}") for number in range(4, 8)])
    assert (made.letters, made.left, made.matched) == (["dlq_0", "dlq_1", "dlq_2"], 5, 8)


@pytest.mark.parametrize(("text", "is_everything"), [("true", True), ("1 < 2", True), ("error_code != ''", False)])
def test_g10_a_filter_that_asks_nothing_of_a_letter_is_known(text: str, is_everything: bool) -> None:
    assert plan(text).takes_everything is is_everything


@pytest.mark.parametrize(("text", "rate"), [("20/s", 20.0), ("90/m", 1.5), ("36/h", 0.01), ("0.5/s", 0.5)])
def test_rates_are_letters_a_second(text: str, rate: float) -> None:
    assert letters_a_second(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "20", "20/d", "0/s", "-1/s", "1e3/s", "20 /s", "/s", "9999999/s"])
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Refused, match="20/s"):
        letters_a_second(text)


async def test_what_was_accepted_is_run_again_whatever_its_schema_asks_now() -> None:
    """As with filters: an event that was taken stays taken."""
    declared = "events:\n  - {type: order.paid, schema: {required: [customer]}}\n"
    due = DueRedrive("rdr_1", PROJECT, "ana", "mended", allow_stale=False, rate=1.0, done=0, allowed=1, created_at=NOW)
    envelope = ENVELOPE.replace('"shop"', f'"{PROJECT}"')
    waiting = WaitingLetter("dlq_1", "run_1", "wf_orders", "trg_orders", "E_UPSTREAM_503", envelope)
    step = await step_of(snapshot_of({**FILES, "events.yaml": declared}), due, [waiting], nothing_stored)
    assert [one.run.input for one in step.redriven] == ['{"total":7,"big":1180591620717411303424}']
    assert step.refused == []


@pytest.mark.parametrize("code", ["E_STORAGE_UNAVAILABLE", "E_STORED_BODY_MISSING"])
@pytest.mark.parametrize(("threshold", "runs", "refused"), [(5, 1, []), (50, 0, ["filtered"])])
async def test_a_filter_that_was_not_asked_while_the_data_was_out_of_reach_is_asked_by_the_redrive(
    threshold: int, runs: int, refused: list[str], code: str
) -> None:
    flow = (
        "name: orders\nversion: 1\n"
        f"trigger: {{event: order.paid, filter: data.total > {threshold}}}\n"
        "steps: [{id: nap, uses: sleep, duration: 1s}]\n"
    )
    due = DueRedrive("rdr_1", PROJECT, "ana", "back", allow_stale=False, rate=1.0, done=0, allowed=1, created_at=NOW)
    envelope = ENVELOPE.replace('"shop"', f'"{PROJECT}"')
    waiting = WaitingLetter("dlq_1", None, "wf_orders", "trg_orders_event", code, envelope)
    step = await step_of(snapshot_of({"orders.yaml": flow}), due, [waiting], nothing_stored)
    assert (len(step.redriven), [one.error_code for one in step.refused]) == (runs, refused)


async def nothing_stored(reference: object) -> bytes:
    raise AssertionError(reference)


def test_a_record_that_did_not_fit_its_schema_was_never_accepted() -> None:
    made = plan()
    made.look_at([letter(run_id=None, workflow_id=None, trigger_id=None, error_code="E_EVENT_SCHEMA")])
    assert made.skipped == {"never_accepted": 1}
