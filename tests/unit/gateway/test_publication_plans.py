"""What a publication changes, decided without a database."""

from dataclasses import replace

import pytest

from processors.runtime.publishing import InForce, Plan, SecretsInForce, plan
from schemas.errors import Refused
from tests.unit.gateway.catalogs import NOTHING, after
from topology.publication import read_files

FLOW = (
    "name: flow\nversion: {version}\ntrigger: {{event: {event}}}\nsteps: [{{id: {step}, uses: sleep, duration: 1s}}]\n"
)


def flow(version: int = 1, step: str = "pause", event: str = "a.b") -> dict[str, str]:
    return {"flow.yaml": FLOW.format(version=version, step=step, event=event)}


def planned(files: dict[str, str], before: InForce, *, dev: bool = False) -> Plan:
    return plan(read_files(files, dev=dev), before, dev=dev)


def said(made: Plan) -> list[tuple[str, str | None, str]]:
    return [(item.id, item.version, item.change) for item in made.published]


def test_the_same_files_again_change_nothing() -> None:
    before = after(flow())
    made = planned(flow(), before)
    assert not made.changes_anything
    assert said(made) == [("wf_flow", "1", "unchanged"), ("trg_flow_event", None, "unchanged")]


def test_a_trigger_of_the_file_is_content_of_its_version() -> None:
    with pytest.raises(Refused, match="raise `version` to 2"):
        planned(flow(event="a.c"), after(flow()))


def test_the_way_out_names_a_version_that_is_free() -> None:
    with pytest.raises(Refused, match="raise `version` to 8"):
        planned(flow(version=1, step="other"), after(flow(version=7), after(flow())))


def test_an_older_version_can_be_added_but_changes_no_trigger() -> None:
    before = after(flow(version=3))
    made = planned(flow(version=2, event="a.c"), before)
    assert said(made) == [("wf_flow", "2", "updated")]
    assert made.triggers == made.removed == []
    assert "stays the latest" in made.warnings[0]


def test_revisions_count_per_version_and_a_release_follows_them() -> None:
    before = after(flow(), dev=True)
    before = after(flow(step="two"), before, dev=True)
    assert said(planned(flow(step="three"), before, dev=True))[0] == ("wf_flow", "1-dev.3", "updated")
    assert said(planned(flow(step="two"), before, dev=True))[0] == ("wf_flow", "1-dev.2", "unchanged")
    assert said(planned(flow(step="two"), before))[0] == ("wf_flow", "1", "updated")
    assert said(planned(flow(version=2), before, dev=True))[0] == ("wf_flow", "2-dev.1", "updated")


def test_a_release_that_a_later_save_overtook_says_what_is_in_force() -> None:
    before = after(flow(step="two"), after(flow()), dev=True)
    made = planned(flow(), before)
    assert said(made)[0] == ("wf_flow", "1", "unchanged")
    assert "1-dev.1" in made.warnings[0]


def test_the_default_queue_is_made_once() -> None:
    assert [queue.id for queue in planned(flow(), NOTHING).queues] == ["q_default"]
    assert planned(flow(version=2), after(flow())).queues == []


def test_references_may_lead_to_what_is_published_before() -> None:
    trigger = {"t.yaml": "- {id: trg_x, type: event, event: a.b, workflow: wf_flow, version: 1}\n"}
    assert said(planned(trigger, after(flow()))) == [("trg_x", None, "created")]
    with pytest.raises(Refused, match="E_WORKFLOW_NOT_FOUND"):
        planned(trigger, NOTHING)
    with pytest.raises(Refused, match="E_VERSION_UNKNOWN"):
        planned({"t.yaml": trigger["t.yaml"].replace("version: 1", "version: 2")}, after(flow()))


HOOKED = "name: flow\nversion: {version}\ntrigger: {trigger}\nsteps: [{{id: pause, uses: sleep, duration: 1s}}]\n"


def hooked(version: int, trigger: str) -> dict[str, str]:
    return {"flow.yaml": HOOKED.format(version=version, trigger=trigger)}


def secrets(made: Plan) -> list[tuple[int, bool]]:
    return [(hook.secret_number, hook.is_new) for hook in made.hooks]


@pytest.mark.parametrize("other", ["{event: a.b, id: trg_other}", "{event: a.b, id: trg_hook}"])
def test_case_A16_a_trigger_that_was_removed_or_of_another_type_never_has_its_dead_secret_again(other: str) -> None:
    hook = "{webhook: {id: trg_hook}}"
    first = after(hooked(1, hook))
    assert secrets(planned(hooked(1, hook), first)) == [(1, False)]
    gone = after(hooked(2, other), first)
    assert gone.secrets["trg_hook"] == SecretsInForce(1, None)
    again = planned(hooked(3, hook), gone)
    assert secrets(again) == [(2, True)]
    assert again.new_secrets == again.hooks


def test_a_webhook_without_a_secret_gets_one_although_nothing_else_changed() -> None:
    """Published by a process of before secrets had a table."""
    before = replace(after(hooked(1, "{webhook: true}")), secrets={})
    made = planned(hooked(1, "{webhook: true}"), before)
    assert secrets(made) == [(1, True)]
    assert made.changes_anything


def types(schema: str, more: str = "") -> dict[str, str]:
    return {"events.yaml": f"events:\n  - type: order.paid\n    schema: {schema}\n{more}"}


ANY_NUMBER, WHOLE = "{properties: {n: {type: number}}}", "{properties: {n: {type: integer}}}"


def test_an_event_type_that_is_declared_otherwise_is_its_next_version() -> None:
    before = after(types(WHOLE))
    assert not planned(types(WHOLE), before).changes_anything
    made = planned(types(ANY_NUMBER), before)
    assert [(one.spec.type, one.version) for one in made.event_types] == [("order.paid", 2)]
    assert said(made) == [("order.paid", "2", "updated")]
    assert made.changes_anything


def test_a_version_that_takes_less_is_refused_at_its_place() -> None:
    with pytest.raises(Refused) as raised:
        planned(types(WHOLE), after(types(ANY_NUMBER)))
    refused = raised.value
    assert (refused.code, refused.details["path"]) == ("E_SCHEMA_INCOMPATIBLE", "/properties/n/type")
    assert str(refused.place) == "events.yaml:3:37"
    assert "version 1" in refused.message


def test_a_version_that_takes_less_goes_through_where_its_author_says_so_and_is_a_word_while_developing() -> None:
    before = after(types(ANY_NUMBER))
    made = planned(types(WHOLE, "    compatibility: none\n"), before)
    assert [one.version for one in made.event_types] == [2]
    assert made.warnings == []
    made = planned(types(WHOLE), before, dev=True)
    assert [one.version for one in made.event_types] == [2]
    assert "/properties/n/type" in made.warnings[0]


def test_avro_and_json_schema_are_compared_by_what_they_take() -> None:
    record = "{type: record, name: Order, fields: [{name: n, type: long}]}"
    avro = {"events.yaml": f"events:\n  - type: order.paid\n    avro: {record}\n"}
    taken = types("{type: object, required: [n], properties: {n: {type: integer}}}")
    assert planned(taken, after(avro)).event_types
    with pytest.raises(Refused) as raised:
        planned(avro, after(taken))
    assert raised.value.code == "E_SCHEMA_INCOMPATIBLE"
    assert str(raised.value.place) == "events.yaml:3:11"
