"""Which runs an envelope makes, without any service around."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import asdict

from processors.ports.catalog import CatalogSnapshot
from processors.ports.runs import NewRun
from processors.runtime.explaining import explain
from processors.runtime.matching import Miss, match, webhook_event_type
from processors.runtime.new_runs import EventScope, manual_run, run_of
from schemas.envelope import Envelope
from schemas.errors import Refused
from schemas.ids import event_millis, new_event_id, run_id
from tests.unit.gateway.catalogs import PROJECT, snapshot_of

FLOW = """
name: refund-review
version: 3
concurrency: {max: 25, partitionKey: "{{ input.order.id }}"}
deadline: 30m
steps: [{id: pause, uses: sleep, duration: 1s}]
"""
PLAIN = """
name: notify
version: 1
steps: [{id: pause, uses: sleep, duration: 1s}]
"""
TRIGGERS = """
- {id: trg_refund_large, type: event, event: refund.requested, workflow: wf_refund_review,
   filter: "data.amountCents > 500000 && data.currency == 'BRL'"}
- {id: trg_refund_all, type: event, event: refund.requested, workflow: wf_notify}
- {id: trg_erp_sync, type: webhook, workflow: wf_refund_review, filter: "data.amountCents > 5"}
"""
SNAPSHOT = snapshot_of({"flow.yaml": FLOW, "plain.yaml": PLAIN, "triggers.yaml": TRIGGERS})
MILLIS = 1_784_500_860_000


def _event(data: str, **changes: object) -> Envelope:
    fields = {
        "id": new_event_id(MILLIS),
        "type": "refund.requested",
        "idempotency_key": "refund:1",
        "partition_key": "cust_1",
        "occurred_at": "2026-07-19T14:02:11.884Z",
        "project_id": PROJECT,
        "data": data,
    }
    return Envelope(**{**fields, **changes})  # type: ignore[arg-type]


def _told(found: list[NewRun | Refused | Miss]) -> list[str]:
    told = {NewRun: lambda run: run.trigger_id, Refused: lambda refused: refused.code, Miss: lambda _: "miss"}
    return [told[type(one)](one) for one in found]  # type: ignore[no-untyped-call]


def test_every_trigger_of_the_type_whose_filter_passes_makes_a_run() -> None:
    large = '{"amountCents": 900000, "currency": "BRL", "order": {"id": 7}}'
    small = '{"amountCents": 900, "currency": "BRL", "order": {"id": 7}}'
    assert _told(match(SNAPSHOT, _event(large))) == ["trg_refund_all", "trg_refund_large"]
    assert _told(match(SNAPSHOT, _event(small))) == ["trg_refund_all", "miss"]
    assert match(SNAPSHOT, _event(large, type="refund.paid")) == []
    assert match(SNAPSHOT, _event(large, project_id="pj_other")) == []


def test_an_absent_field_is_a_miss_and_a_wrong_type_is_kept_as_a_refusal() -> None:
    assert _told(match(SNAPSHOT, _event("{}"))) == ["trg_refund_all", "miss"]
    found = match(SNAPSHOT, _event('{"amountCents": "much", "currency": "BRL"}'))
    assert _told(found) == ["trg_refund_all", "E_FILTER_ERROR"]
    refused = found[1]
    assert isinstance(refused, Refused)
    assert refused.details["trigger_id"] == "trg_refund_large"


def test_a_run_carries_the_envelope_the_version_and_its_place() -> None:
    envelope = _event('{"amountCents":  900000, "currency": "BRL", "order": {"id": 1180591620717411303424}}')
    run = next(one for one in match(SNAPSHOT, envelope) if isinstance(one, NewRun) and one.ordered)
    assert asdict(run) == {
        "run_id": run_id(envelope.project_id, envelope.id, "trg_refund_large", 1),
        "project_id": PROJECT,
        "workflow_id": "wf_refund_review",
        "definition_id": SNAPSHOT.latest[PROJECT, "wf_refund_review"].definition_id,
        "version": "3",
        "queue_id": "q_refund_review",
        "lane": "1180591620717411303424",
        "ordered": True,
        "event_id": envelope.id,
        "event_type": "refund.requested",
        "trigger_id": "trg_refund_large",
        "idempotency_key": "refund:1",
        "partition_key": "cust_1",
        "correlation_id": None,
        "operation_version": 1,
        "redrive_count": 0,
        "occurred_at": "2026-07-19T14:02:11.884Z",
        "attempt": 1,
        "names_trigger": False,
        "sent_partition_key": None,
        "input": envelope.data,
        "deadline": 1800.0,
        "stale_at": None,
        "input_ref": None,
    }


def test_without_a_declared_key_the_lane_is_the_partition_key_in_the_default_queue() -> None:
    run = match(SNAPSHOT, _event("{}"))[0]
    assert isinstance(run, NewRun)
    assert (run.lane, run.queue_id, run.ordered) == ("cust_1", "q_default", False)


def test_a_lane_that_cannot_be_told_is_a_refusal_and_no_run() -> None:
    found = match(SNAPSHOT, _event('{"amountCents": 900000, "currency": "BRL"}'))
    assert _told(found) == ["trg_refund_all", "E_EXPRESSION"]


def test_a_webhook_makes_the_run_that_its_door_promised_without_asking_the_filter_again() -> None:
    envelope = _event(
        '{"amountCents": 1, "order": {"id": "o1"}}', type=webhook_event_type("trg_erp_sync"), trigger_id="trg_erp_sync"
    )
    trigger = SNAPSHOT.triggers[PROJECT, "trg_erp_sync"]
    promised = run_of(SNAPSHOT, trigger, EventScope(envelope))
    [run] = match(SNAPSHOT, envelope)
    assert isinstance(run, NewRun)
    assert run.lane == "o1"
    assert run == promised
    assert event_millis("evt_" + run.run_id[4:]) == MILLIS


@pytest.mark.parametrize(
    ("trigger_id", "event_type"), [("trg_gone", "webhook.gone"), ("trg_erp_sync", "refund.requested")]
)
def test_an_event_for_a_trigger_that_cannot_take_it_is_kept_as_a_refusal(trigger_id: str, event_type: str) -> None:
    assert _told(match(SNAPSHOT, _event("{}", trigger_id=trigger_id, type=event_type))) == ["E_TRIGGER_NOT_FOUND"]


def test_an_id_of_a_producers_own_needs_the_time_of_acceptance_and_gives_the_same_run_again() -> None:
    first = match(SNAPSHOT, _event("{}", id="evt_01J9XQ7M4K"), millis=MILLIS)
    again = match(SNAPSHOT, _event("{}", id="evt_01J9XQ7M4K"), millis=MILLIS)
    assert first == again


def test_a_run_by_hand_takes_the_latest_or_the_named_version() -> None:
    asked = {
        "project_id": PROJECT,
        "workflow_id": "wf_refund_review",
        "event_id": new_event_id(MILLIS),
        "idempotency_key": "manual-1",
        "occurred_at": "2026-07-19T14:02:11.884Z",
        "input_text": '{"order": {"id": true}}',
    }
    run = manual_run(SNAPSHOT, version=None, **asked)
    assert (run.trigger_id, run.lane, run.partition_key, run.version) == ("trg_manual", "true", "manual-1", "3")
    assert manual_run(SNAPSHOT, version="3", **asked) == run
    with pytest.raises(Refused, match="E_VERSION_UNKNOWN"):
        manual_run(SNAPSHOT, version="2", **asked)
    with pytest.raises(Refused, match="E_WORKFLOW_NOT_FOUND"):
        manual_run(SNAPSHOT, version=None, **{**asked, "project_id": "pj_other"})
    with pytest.raises(Refused, match="E_EXPRESSION"):
        manual_run(SNAPSHOT, version=None, **{**asked, "input_text": "{}"})


def test_an_event_trigger_s_own_key_is_the_run_s_partition_key_and_lane() -> None:
    trigger = (
        "- {id: trg_paid, type: event, event: paid, workflow: wf_notify, "
        "partitionKey: '{{ data.shop }}-{{ event.partition_key }}'}"
    )
    snapshot = snapshot_of({"plain.yaml": PLAIN, "triggers.yaml": trigger})
    [run] = match(snapshot, _event('{"shop": 7}', type="paid"))
    assert isinstance(run, NewRun)
    assert (run.partition_key, run.lane) == ("7-cust_1", "7-cust_1")
    assert _told(match(snapshot, _event("{}", type="paid"))) == ["E_EXPRESSION"]


def test_a_webhook_s_own_key_is_given_by_its_door_and_not_a_second_time() -> None:
    trigger = "- {id: trg_erp, type: webhook, workflow: wf_notify, partitionKey: '{{ event.partition_key }}-x'}"
    snapshot = snapshot_of({"plain.yaml": PLAIN, "triggers.yaml": trigger})
    given = _event("{}", type=webhook_event_type("trg_erp"), trigger_id="trg_erp", partition_key="k-x")
    [run] = match(snapshot, given)
    assert isinstance(run, NewRun)
    assert run.lane == "k-x"


def test_every_trigger_says_what_it_would_do_with_an_event_and_why() -> None:
    now = datetime(2026, 7, 19, 15, tzinfo=UTC)
    small = _event('{"amountCents": 900, "currency": "BRL", "order": {"id": 7}}')
    verdicts = {one.trigger.trigger_id: one for one in explain(SNAPSHOT, small, now)}
    assert list(verdicts) == ["trg_erp_sync", "trg_refund_all", "trg_refund_large"]
    assert verdicts["trg_erp_sync"].why == "it takes webhook.erp_sync"
    assert verdicts["trg_refund_all"].run is not None
    assert (verdicts["trg_refund_large"].run, verdicts["trg_refund_large"].code) == (None, None)
    assert "data.amountCents > 500000" in verdicts["trg_refund_large"].why
    wrong = explain(SNAPSHOT, _event('{"amountCents": "much", "currency": "BRL"}'), now)[2]
    assert (wrong.run, wrong.code) == (None, "E_FILTER_ERROR")
    hook = _event('{"amountCents": 1}', type="webhook.erp_sync")
    assert [one.why[:20] for one in explain(SNAPSHOT, hook, now)] == [
        "its filter is not tr", "it takes refund.requ", "it takes refund.requ",
    ]  # fmt: skip
    named = _event("{}", type="webhook.erp_sync", trigger_id="trg_erp_sync")
    assert [one.why for one in explain(SNAPSHOT, named, now)][1] == "the event names trg_erp_sync"
    assert explain(SNAPSHOT, _event("{}", project_id="pj_other"), now) == []


def test_what_would_happen_is_what_happens() -> None:
    now = datetime(2026, 7, 19, 15, tzinfo=UTC)
    for snapshot, event in ((SNAPSHOT, _event('{"order": {"id": 1}}')), (RECENT, _event("{}", type="paid"))):
        made = [one for one in match(snapshot, event, now=now, millis=MILLIS) if isinstance(one, NewRun)]
        assert [one.run for one in explain(snapshot, event, now) if one.run is not None] == made


RECENT = snapshot_of(
    {
        "plain.yaml": PLAIN,
        "triggers.yaml": """
- {id: trg_any, type: event, event: paid, workflow: wf_notify}
- {id: trg_fresh, type: event, event: paid, workflow: wf_notify, deliver: {maxAge: 10m}}
- {id: trg_hook, type: webhook, workflow: wf_notify, deliver: {maxAge: 10m}}
""",
    }
)


@pytest.mark.parametrize(("minute", "told"), [(12, ["trg_any", "trg_fresh"]), (13, ["trg_any", "E_EVENT_TOO_OLD"])])
def test_an_event_that_is_too_old_for_a_trigger_makes_the_other_runs_only(minute: int, told: list[str]) -> None:
    now = datetime(2026, 7, 19, 14, minute, 11, 885_000, tzinfo=UTC) - timedelta(milliseconds=2)
    assert _told(match(RECENT, _event("{}", type="paid"), now=now)) == told


def test_a_run_says_when_its_event_is_too_old() -> None:
    _, fresh = match(RECENT, _event("{}", type="paid"))
    assert isinstance(fresh, NewRun)
    assert fresh.stale_at == "2026-07-19T14:12:11.884Z"
    endless = _event("{}", type="paid", occurred_at="9999-12-31T23:59:59Z")
    assert [one.stale_at for one in match(RECENT, endless) if isinstance(one, NewRun)] == [None, None]


def test_the_run_that_a_webhook_s_door_has_promised_is_made_however_late_its_event_is_read() -> None:
    late = datetime(2027, 1, 1, tzinfo=UTC)
    [run] = match(RECENT, _event("{}", type=webhook_event_type("trg_hook"), trigger_id="trg_hook"), now=late)
    assert isinstance(run, NewRun)
    assert run.stale_at == "2026-07-19T14:12:11.884Z"


NEWER = PLAIN.replace("version: 1", "version: 2")
PINNED = """
- {id: trg_old, type: event, event: paid, workflow: wf_notify, version: 1}
- {id: trg_new, type: event, event: paid, workflow: wf_notify}
- {id: trg_by_hand, type: manual, workflow: wf_notify, version: 1}
- {id: trg_refund, type: manual, workflow: wf_refund_review}
- {id: trg_refund_again, type: manual, workflow: wf_refund_review}
"""


def _two_versions() -> CatalogSnapshot:
    old = snapshot_of({"flow.yaml": FLOW, "plain.yaml": PLAIN, "triggers.yaml": PINNED})
    new = snapshot_of({"plain.yaml": NEWER})
    return replace(
        old,
        latest={**old.latest, **new.latest},
        by_version={**old.by_version, **new.by_version},
        by_label={**old.by_label, **new.by_label},
    )


TWO_VERSIONS = _two_versions()


def test_a_pinned_trigger_keeps_its_version_and_the_others_take_the_latest() -> None:
    made = [one for one in match(TWO_VERSIONS, _event("{}", type="paid")) if isinstance(one, NewRun)]
    assert [(one.trigger_id, one.version) for one in made] == [("trg_new", "2"), ("trg_old", "1")]


BY_HAND = {
    "project_id": PROJECT,
    "event_id": new_event_id(MILLIS),
    "idempotency_key": "manual-1",
    "occurred_at": "2026-07-19T14:02:11.884Z",
    "input_text": '{"order": {"id": 1}}',
}


def test_a_declared_manual_trigger_gives_runs_by_hand_its_version_and_its_name() -> None:
    run = manual_run(TWO_VERSIONS, workflow_id="wf_notify", version=None, **BY_HAND)
    assert (run.trigger_id, run.version) == ("trg_by_hand", "1")
    named = manual_run(TWO_VERSIONS, workflow_id="wf_notify", version="2", trigger_id="trg_by_hand", **BY_HAND)
    assert (named.trigger_id, named.version) == ("trg_by_hand", "2")


def test_of_several_manual_triggers_one_is_named() -> None:
    run = manual_run(
        TWO_VERSIONS, workflow_id="wf_refund_review", version=None, trigger_id="trg_refund_again", **BY_HAND
    )
    assert run.trigger_id == "trg_refund_again"
    for unclear in (None, "trg_by_hand", "trg_gone"):
        with pytest.raises(Refused, match=r"trg_refund, trg_refund_again.*E_TRIGGER_NOT_FOUND"):
            manual_run(TWO_VERSIONS, workflow_id="wf_refund_review", version=None, trigger_id=unclear, **BY_HAND)
