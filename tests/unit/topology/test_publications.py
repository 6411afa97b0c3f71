"""A publication as a whole: ids that meet, references that lead somewhere, specs that are stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Place, Refused
from topology.connectors import ConnectorSpec
from topology.publication import KnownNames, check_references, read_files
from topology.queues import QueueSpec
from topology.topics import Topics
from topology.triggers import TriggerSpec
from topology.workflows import WorkflowSpec

FLOW = """\
name: flow
version: 2
queue: q_slow
steps:
  - { id: a, uses: connector/pay.charge, timeout: 1s, compensate: connector/pay.refund }
"""
QUOTED = '"flow"'
SHAPE = """\
- { id: con_pay, type: http, baseUrl: "http://x", operations: { charge: { path: / }, refund: { path: / } } }
- { id: q_slow }
- { id: trg_flow, type: manual, workflow: wf_flow, version: 2 }
"""
CODE = 'from anthares44.automation import workflow\n@workflow("flow", version=2)\nasync def f(ctx, input):\n    pass\n'

ids = st.from_regex(r"[a-z0-9][a-z0-9_]{0,20}", fullmatch=True)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{\0")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


def refusals(files: dict[str, str], known: KnownNames | None = None) -> list[tuple[str, str, int, int]]:
    with pytest.raises(Refused) as caught:
        check_references(read_files(files), known or KnownNames())
    listed = caught.value.details["errors"]
    assert isinstance(listed, list)
    return [(item["code"], item["file"], item["line"], item["column"]) for item in listed]


def test_files_refer_to_each_other() -> None:
    publication = read_files({"flow.yaml": FLOW, "shape.yml": SHAPE})
    check_references(publication, KnownNames())


def test_files_refer_to_what_is_published_already() -> None:
    known = KnownNames({"wf_flow": {1, 2}}, {"con_pay": {"charge", "refund"}}, {"q_slow"})
    check_references(read_files({"flow.yaml": FLOW}), known)
    check_references(read_files({"shape.yaml": SHAPE}), known)
    check_references(read_files({"flow.yaml": FLOW}), KnownNames({"wf_flow"}, {"con_pay"}, {"q_slow"}))


def test_a_reference_that_leads_nowhere_has_its_place() -> None:
    assert refusals({"flow.yaml": FLOW}) == [
        ("E_SPEC_INVALID", "flow.yaml", 3, 8),
        ("E_CONNECTOR_UNKNOWN", "flow.yaml", 5, 20),
        ("E_CONNECTOR_UNKNOWN", "flow.yaml", 5, 67),
    ]
    known = KnownNames({"wf_flow": {1}}, {"con_pay": {"charge"}}, {"q_slow"})
    assert refusals({"flow.yaml": FLOW}, known) == [("E_CONNECTOR_UNKNOWN", "flow.yaml", 5, 67)]
    shape = "- { id: trg_a, type: manual, workflow: wf_flow, version: 9 }\n"
    assert refusals({"s.yaml": shape}, known) == [("E_VERSION_UNKNOWN", "s.yaml", 1, 58)]
    assert refusals({"s.yaml": shape}, KnownNames()) == [("E_WORKFLOW_NOT_FOUND", "s.yaml", 1, 58)]


def test_a_version_may_be_published_in_the_same_go() -> None:
    shape = "- { id: trg_a, type: manual, workflow: wf_flow, version: 2 }\n"
    known = KnownNames({"wf_flow": {1}}, {"con_pay": {"charge", "refund"}}, {"q_slow"})
    check_references(read_files({"s.yaml": shape, "flow.yaml": FLOW}), known)


def test_near_names_are_offered() -> None:
    with pytest.raises(Refused, match="did you mean `con_pay`"):
        check_references(
            read_files({"f.yaml": FLOW.replace("/pay.charge", "/pays.charge"), "s.yaml": SHAPE}), KnownNames()
        )
    with pytest.raises(Refused, match="did you mean `charge`"):
        check_references(read_files({"f.yaml": FLOW.replace("pay.charge", "pay.charg"), "s.yaml": SHAPE}), KnownNames())


@pytest.mark.parametrize(
    "files",
    [
        {"a.yaml": FLOW, "b.yaml": FLOW},
        {"a.py": CODE, "b.yaml": FLOW},
        {"a.py": CODE, "b.py": CODE},
        {"a.yaml": SHAPE, "b.yaml": "- { id: q_slow }\n"},
        {"a.yaml": "[{ id: q_a }, { id: q_a }]\n"},
        {"a.yaml": FLOW, "b.yaml": FLOW.replace("name: flow", "name: flow ").replace("version: 2", "version: 3")},
    ],
)
def test_an_id_is_declared_once(files: dict[str, str]) -> None:
    with pytest.raises(Refused, match="is declared already at"):
        read_files(files)


def test_names_that_differ_in_dashes_meet() -> None:
    with pytest.raises(Refused, match="wf_a_b"):
        read_files({"a.yaml": FLOW.replace("flow", "a-b"), "b.yaml": FLOW.replace("flow", "a_b")})


def test_errors_of_all_files_are_listed() -> None:
    files = {
        "a.yaml": "x: [",
        "b.yaml": FLOW.replace("1s", "x"),
        "c.py": "def (",
        "d.txt": "",
        "e.yaml": "a: 1\na: 2\n",
    }
    with pytest.raises(Refused) as caught:
        read_files(files)
    listed = caught.value.details["errors"]
    assert isinstance(listed, list)
    assert [item["file"] for item in listed] == ["a.yaml", "b.yaml", "c.py", "d.txt", "e.yaml"]
    assert [item["code"] for item in listed] == [
        "E_YAML",
        "E_SPEC_INVALID",
        "E_BUNDLE_INVALID",
        "E_SPEC_INVALID",
        "E_DUPLICATE_KEY",
    ]
    assert (caught.value.code, caught.value.place) == ("E_YAML", Place("a.yaml", 2, 1))


def test_nothing_is_not_a_publication() -> None:
    with pytest.raises(Refused, match="nothing to publish"):
        read_files({})


@given(
    queue=st.builds(
        lambda name, size, order: {"id": f"q_{name}", "maxConcurrency": size, "ordering": order},
        ids,
        st.integers(1, 1000),
        st.sampled_from(["none", "by-partition"]),
    )
)
def test_queues_are_stored_and_read_again(queue: dict[str, object]) -> None:
    spec = QueueSpec.model_validate(queue)
    assert QueueSpec.from_json(spec.to_json()) == spec


@given(given_value=json_values, output=json_values, seconds=st.floats(0.001, 1000))
def test_workflows_are_stored_and_read_again(given_value: object, output: object, seconds: float) -> None:
    step = {"id": "a", "uses": "connector/x.y", "timeout": seconds, "with": given_value, "if": "input.x > 1"}
    nap = {"id": "b", "uses": "sleep", "duration": "5m"}
    sql = {"id": "c", "uses": "sql/execute", "timeout": "1s", "query": "select $1", "params": [given_value]}
    spec = WorkflowSpec.model_validate(
        {
            "name": "w-x",
            "workflowId": "wf_w_x",
            "version": 3,
            "label": "3-dev.2",
            "kind": "yaml",
            "steps": [step, nap, sql],
            "output": output,
            "concurrency": {"max": 3, "partitionKey": "{{ input.k }}"},
            "queueId": "q_w_x",
            "triggers": ["trg_w_x_event"],
        }
    )
    again = WorkflowSpec.from_json(spec.to_json())
    assert again == spec
    assert again.to_json() == spec.to_json()
    assert repr(again.steps) == repr(spec.steps)
    assert repr(again.output) == repr(spec.output)


def test_everything_that_files_declare_is_stored_and_read_again() -> None:
    publication = read_files({"flow.yaml": FLOW, "shape.yaml": SHAPE, "g.py": CODE.replace(QUOTED, '"g"')})
    for workflow in publication.workflows:
        assert WorkflowSpec.from_json(workflow.to_json()) == workflow
    for trigger in publication.triggers:
        assert TriggerSpec.from_json(trigger.to_json()) == trigger
    for connector in publication.connectors:
        assert ConnectorSpec.from_json(connector.to_json()) == connector
    for queue in publication.queues:
        assert QueueSpec.from_json(queue.to_json()) == queue


def test_a_stored_spec_keeps_its_defaults() -> None:
    """A later version may have other defaults; what was published keeps its meaning."""
    assert '"maxConcurrency":100' in QueueSpec.from_json('{"id":"q_a"}').to_json()


def test_topics_are_named_and_sized() -> None:
    topics = Topics("x1")
    assert (topics.events, topics.commands, topics.run_events) == (
        "x1.events.v1",
        "x1.commands.v1",
        "x1.run-events.v1",
    )
    assert topics.retries() == {"x1.retry.10s.v1": 10, "x1.retry.1m.v1": 60, "x1.retry.10m.v1": 600}
    assert topics.dead_letters == "x1.dead-letters.v1"
    every = topics.all()
    assert len({topic.name for topic in every}) == 7
    assert all(topic.partitions > 0 and topic.settings()["retention.ms"] for topic in every)
    assert Topics().events == "a44.events.v1"
