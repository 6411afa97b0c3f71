"""YAML workflow files: the guide's example as printed, and every refusal at its place."""

import textwrap

import pytest

from schemas.errors import Place, Refused
from topology.publication import Publication, read_files
from topology.steps import ConnectorStep, SleepStep, SqlStep
from topology.workflows import WorkflowSpec

GUIDE = """\
name: invoice-settle
version: 3
trigger:
  event: billing.invoice.finalized
concurrency:
  max: 25
  partitionKey: "{{ input.invoiceId }}"
steps:
  - id: reserve-funds
    uses: connector/payments.authorize
    timeout: 15s
    retry: { max: 5, strategy: exponential-jitter }
    compensate: connector/payments.void
  - id: mark-paid
    uses: sql/execute
    timeout: 5s
    query: "update invoices set status='paid' where id = $1"
"""


def publish(source: str, *, dev: bool = False) -> Publication:
    return read_files({"w.yaml": source}, dev=dev)


def errors(source: str) -> list[Refused]:
    with pytest.raises(Refused) as caught:
        publish(source)
    listed = caught.value.details["errors"]
    assert isinstance(listed, list)
    return [
        Refused(item["code"], item["message"], Place(item["file"], item["line"], item["column"])) for item in listed
    ]


def workflow(steps: str = "", head: str = "") -> str:
    body = textwrap.dedent(steps or "- {id: nap, uses: sleep, duration: 1s}\n")
    return f"name: w\nversion: 1\n{textwrap.dedent(head)}steps:\n{textwrap.indent(body, '  ')}"


def only_error(source: str) -> Refused:
    found = errors(source)
    assert len(found) == 1, [str(error) for error in found]
    return found[0]


def test_the_guides_example_loads_as_printed() -> None:
    publication = publish(GUIDE)
    (spec,) = publication.workflows
    assert (spec.name, spec.workflow_id, spec.version, spec.label, spec.kind) == (
        "invoice-settle",
        "wf_invoice_settle",
        3,
        "3",
        "yaml",
    )
    reserve, mark = spec.steps
    assert isinstance(reserve, ConnectorStep)
    assert isinstance(mark, SqlStep)
    assert (reserve.target.connector_id, reserve.target.operation) == ("con_payments", "authorize")
    assert reserve.undo is not None
    assert (reserve.undo.connector_id, reserve.undo.operation) == ("con_payments", "void")
    assert reserve.retry.model_dump() == {"max": 5, "strategy": "exponential-jitter", "base": 1.0, "cap": 300.0}
    assert (reserve.timeout, mark.timeout, mark.retry.max) == (15.0, 5.0, 3)
    assert mark.binds_lane
    assert spec.lane_of({"input": {"invoiceId": "inv_8812"}}) == "inv_8812"
    (queue,) = publication.queues
    assert (queue.id, queue.max_concurrency, queue.ordering) == ("q_invoice_settle", 25, "by-partition")
    assert spec.queue_id == queue.id
    (trigger,) = publication.triggers
    assert (trigger.id, trigger.type, trigger.event) == (
        "trg_invoice_settle_event",
        "event",
        "billing.invoice.finalized",
    )
    assert (trigger.workflow, trigger.version, trigger.owner) == ("wf_invoice_settle", 3, "workflow")
    assert spec.triggers == [trigger.id]


def test_a_compensation_that_will_not_run_is_warned_of() -> None:
    (warning,) = publish(GUIDE).warnings
    assert warning.startswith("w.yaml:13:5: `compensate` is kept, and does not run in this version")
    assert publish("".join(line for line in GUIDE.splitlines(True) if "compensate" not in line)).warnings == []


def test_a_lane_that_cannot_be_told_is_refused_as_such() -> None:
    (spec,) = publish(GUIDE).workflows
    with pytest.raises(Refused, match=r"the partition key cannot be told: `input\.invoiceId`") as caught:
        spec.lane_of({"input": {}})
    assert caught.value.code == "E_EXPRESSION"


def test_a_development_version_says_so() -> None:
    (spec,) = publish(GUIDE, dev=True).workflows
    assert spec.label == "3-dev"
    assert spec.labelled("3-dev.2").label == "3-dev.2"
    assert (spec.labelled("3-dev.2").version, spec.labelled("3-dev.2").steps) == (3, spec.steps)


def test_steps_take_input_conditions_and_parameters() -> None:
    (spec,) = publish(
        workflow("""\
            - id: first
              uses: connector/crm.find
              timeout: 2s
              if: "input.total > 10"
              with: { id: "{{ input.id }}", fixed: 1 }
            - id: nap
              uses: sleep
              duration: 30s
            - id: second
              uses: sql/execute
              timeout: 5s
              query: "insert into t values ($1, $2)"
              params: ["{{ steps['first'].ref }}", 7]
            """)
    ).workflows
    first, nap, second = spec.steps
    assert isinstance(first, ConnectorStep)
    assert isinstance(nap, SleepStep)
    assert isinstance(second, SqlStep)
    assert first.condition is not None
    assert first.condition.holds({"input": {"total": 11}})
    assert first.arguments is not None
    assert first.arguments.render({"input": {"id": "x"}}) == {"id": "x", "fixed": 1}
    assert nap.duration == 30.0
    assert second.bound_values is not None
    assert second.bound_values.render({"steps": {"first": {"ref": 2**70}}}) == [2**70, 7]
    assert spec.queue_id == "q_default"
    assert spec.lane_of({}) is None


def test_a_deadline_is_a_length_from_acceptance() -> None:
    (spec,) = publish(workflow(head="deadline: 30m\n")).workflows
    assert spec.deadline == 1800.0
    assert WorkflowSpec.from_json(spec.to_json()) == spec
    assert publish(workflow()).workflows[0].deadline is None


def test_a_workflow_without_a_deadline_is_stored_as_before_there_were_any() -> None:
    """A published version keeps its checksum, so that it can be published again as it is."""
    assert "deadline" not in publish(workflow()).workflows[0].to_json()


@pytest.mark.parametrize("written", ["0s", "-1", "soon", "400d", "[1s]"])
def test_a_deadline_that_is_none_is_refused_at_its_place(written: str) -> None:
    error = only_error(workflow(head=f"deadline: {written}\n"))
    assert (error.code, error.place) == ("E_SPEC_INVALID", Place("w.yaml", 3, 11))


def test_triggers_of_a_workflow_file() -> None:
    head = """\
        trigger:
          event: a.b
          filter: "data.x > 1"
          partitionKey: "{{ data.k }}"
          webhook: { requireIdempotencyKey: true }
        """
    by_event, by_webhook = publish(workflow(head=head)).triggers
    assert (by_event.id, by_event.filter) == ("trg_w_event", "data.x > 1")
    assert by_event.partition_of({"data": {"k": "v"}}) == "v"
    assert by_event.accepts({"data": {"x": 2}})
    assert (by_webhook.id, by_webhook.type, by_webhook.require_idempotency_key) == ("trg_w_webhook", "webhook", True)
    (named,) = publish(workflow(head="trigger: {webhook: true, id: trg_erp_sync}\n")).triggers
    assert (named.id, named.version) == ("trg_erp_sync", 1)


def test_an_output_reads_the_steps() -> None:
    source = workflow() + "output: { slept: \"{{ 'nap' in steps }}\" }\n"
    (spec,) = publish(source).workflows
    assert spec.output_template is not None
    assert spec.output_template.render({"steps": {"nap": None}}) == {"slept": True}


def test_a_queue_is_referred_to() -> None:
    publication = publish(workflow(head="queue: q_slow\n"))
    assert publication.workflows[0].queue_id == "q_slow"
    assert [(one.target, one.id) for one in publication.references] == [("queue", "q_slow")]


def test_a_constant_partition_key_is_warned_of() -> None:
    publication = publish(workflow(head="concurrency: {partitionKey: input.id}\n"))
    assert "w.yaml:3:29" in publication.warnings[0]


@pytest.mark.parametrize(
    ("source", "code", "line", "column", "says"),
    [
        (GUIDE.replace("    timeout: 15s\n", ""), "E_STEP_TIMEOUT_MISSING", 9, 5, "timeout: 15s"),
        (GUIDE.replace("mark-paid", "reserve-funds"), "E_DUPLICATE_STEP_ID", 14, 9, "line 9"),
        (GUIDE.replace("timeout: 5s", "timeut: 5s\n    timeout: 5s"), "E_SPEC_INVALID", 16, 5, "`timeout`?"),
        (GUIDE.replace("15s", "15 sec"), "E_SPEC_INVALID", 11, 14, "`250ms`"),
        (GUIDE.replace("15s", "100h"), "E_SPEC_INVALID", 11, 14, "72 hours"),
        (GUIDE.replace("max: 5,", "max: 0,"), "E_SPEC_INVALID", 12, 19, "greater than or equal to 1"),
        (GUIDE.replace("max: 5,", "max: '5',"), "E_SPEC_INVALID", 12, 19, "a whole number"),
        (GUIDE.replace("exponential-jitter", "fixed"), "E_SPEC_INVALID", 12, 32, "exponential-jitter"),
        (GUIDE.replace("max: 5", "tries: 5"), "E_SPEC_INVALID", 12, 14, "`tries` is not known here"),
        (GUIDE.replace("max: 5,", "base: 9m,"), "E_SPEC_INVALID", 12, 12, "below `base`"),
        (GUIDE.replace("version: 3", "version: '3'"), "E_SPEC_INVALID", 2, 10, "a whole number, not the text"),
        (GUIDE.replace("version: 3", "version: 0"), "E_SPEC_INVALID", 2, 10, "not `0`"),
        (GUIDE.replace("version: 3", "version: true"), "E_SPEC_INVALID", 2, 10, "not `true`"),
        (GUIDE.replace("version: 3\n", ""), "E_SPEC_INVALID", 1, 1, "`version` is missing"),
        (GUIDE.replace("invoice-settle", "Invoice Settle"), "E_SPEC_INVALID", 1, 7, "a workflow name"),
        (GUIDE.replace("reserve-funds", "~reserve"), "E_SPEC_INVALID", 9, 9, "a step id"),
        (GUIDE.replace("sql/execute", "sql/exec"), "E_SPEC_INVALID", 15, 11, "`sql/execute`?"),
        (GUIDE.replace("sql/execute", "bot/invoke"), "E_SPEC_INVALID", 15, 11, "not available in this version"),
        (GUIDE.replace("connector/payments.void", "payments.void"), "E_SPEC_INVALID", 13, 17, "an operation"),
        (GUIDE.replace("input.invoiceId }}", "inputs.invoiceId }}"), "E_EXPRESSION", 7, 21, "`input`?"),
        (GUIDE.replace("= $1", "= $2"), "E_SPEC_INVALID", 17, 12, "only $1, the lane value"),
        (GUIDE.replace("$1", "{{ input.id }}"), "E_SPEC_INVALID", 17, 58, "`params`"),
        (GUIDE.replace("event: billing.invoice.finalized", "event: 'a b'"), "E_SPEC_INVALID", 4, 10, "event type"),
        (GUIDE.replace("  event: billing.invoice.finalized", "  {}"), "E_SPEC_INVALID", 4, 3, "`webhook: true`"),
        (GUIDE.replace("  event: bil", "  schedule: x\n  event: bil"), "E_SPEC_INVALID", 4, 3, "not available"),
        (GUIDE.replace("trigger:", "input: {}\ntrigger:"), "E_SPEC_INVALID", 3, 1, "not available"),
        (GUIDE.replace("trigger:", "queue: q_x\ntrigger:"), "E_SPEC_INVALID", 3, 1, "keep one"),
        (workflow(head="queue: slow\n"), "E_SPEC_INVALID", 3, 8, "`q_invoice_settle`"),
        (workflow("- {id: a, uses: sleep}\n"), "E_SPEC_INVALID", 4, 5, "`duration` is missing"),
        (workflow("- {id: a, uses: sleep, duration: 1s, timeout: 1s}\n"), "E_SPEC_INVALID", 4, 40, "`timeout`"),
        (workflow("- {id: a, timeout: 1s}\n"), "E_SPEC_INVALID", 4, 5, "`uses`"),
        (workflow("- nap\n"), "E_SPEC_INVALID", 4, 5, "a mapping"),
        ("name: w\nversion: 1\nsteps: []\n", "E_SPEC_INVALID", 3, 8, "at least 1"),
        ("name: w\nversion: 1\nsteps: {}\n", "E_SPEC_INVALID", 3, 8, "a list, not a mapping"),
        ("name: w\nversion: 1\n", "E_SPEC_INVALID", 1, 1, "`steps` is missing"),
        ("", "E_SPEC_INVALID", 1, 1, "declares nothing"),
        ("services: {}\n", "E_SPEC_INVALID", 1, 1, "declares nothing"),
        ("just text\n", "E_SPEC_INVALID", 1, 1, "declares nothing"),
    ],
)
def test_a_mistake_is_refused_at_its_place(source: str, code: str, line: int, column: int, says: str) -> None:
    error = only_error(source)
    assert (error.code, error.place) == (code, Place("w.yaml", line, column)), str(error)
    assert says in error.message


@pytest.mark.parametrize(
    ("step", "column", "says"),
    [
        ("if: \"steps['frist'].ok\"", 11, "`first`?"),
        ('if: "{{ steps.later.ok }}"', 14, "no step `later`"),
        ("with: { x: [\"{{ steps['secnd'].ref }}\"] }", 22, "no step `secnd`"),
        ('if: "steps.second.ok"', 11, "no step `second`"),
    ],
)
def test_a_step_that_is_read_must_come_before(step: str, column: int, says: str) -> None:
    steps = textwrap.dedent(f"""\
        - id: first
          uses: connector/crm.find
          timeout: 2s
        - id: second
          uses: connector/crm.find
          timeout: 2s
          {step}
        """)
    error = only_error(workflow(steps))
    assert error.code == "E_EXPRESSION"
    assert error.place is not None
    assert (error.place.line, error.place.column) == (10, column - 1), str(error)
    assert says in error.message


@pytest.mark.parametrize(
    ("query", "params", "says"),
    [
        ("select $1, $2", "[1]", "uses $2"),
        ("select $1", "[1, 2]", "never uses $2"),
        ("select $0", "[1]", "uses $0"),
        ("select '$2', $1 -- $3", "[1]", ""),
        ("select $1 /* $4 */, $tag$ $5 $tag$", "[1]", ""),
        ('select "$9", $1::text', "[1]", ""),
        ("select 1", "[]", ""),
        ("   ", "[]", "is empty"),
    ],
)
def test_parameters_are_counted_outside_of_quotes(query: str, params: str, says: str) -> None:
    step = f"- {{id: a, uses: sql/execute, timeout: 1s, query: {query!r}, params: {params}}}\n"
    if query.startswith("select '$2'"):
        step = f'- {{id: a, uses: sql/execute, timeout: 1s, query: "{query}", params: {params}}}\n'
    if says:
        assert says in only_error(workflow(step)).message
    else:
        publish(workflow(step))


@pytest.mark.parametrize("text", ["input.x == '{{'", "{'a': {'b': true}}['a']['b']", "{{ input.x == '}}' }}"])
def test_braces_inside_a_condition_are_no_template(text: str) -> None:
    assert publish(workflow(f'- {{id: a, uses: sleep, duration: 1s, if: "{text}"}}\n')).workflows


def test_too_few_entries_are_counted() -> None:
    assert only_error("name: w\nversion: 1\nsteps: []\n").message == "`steps` has at least 1 entries, not 0"


def test_all_mistakes_are_listed_in_order() -> None:
    source = GUIDE.replace("15s", "soon").replace("version: 3", "version: x").replace("sql/execute", "sql/x")
    assert [(error.place.line if error.place else 0) for error in errors(source)] == [2, 11, 15]


def test_large_files_stay_quick_and_bounded() -> None:
    many = "".join(f"- {{id: s{n}, uses: sleep, duration: 1s}}\n" for n in range(1000))
    assert len(publish(workflow(many)).workflows[0].steps) == 1000
    assert "at most 1000" in only_error(workflow(many + "- {id: z, uses: sleep, duration: 1s}\n")).message


def test_an_exclusive_step_is_refused_while_nobody_could_confirm_it() -> None:
    with pytest.raises(Refused, match="`exclusive` is not available in this version"):
        publish(
            workflow("""\
                - id: first
                  uses: connector/crm.find
                  timeout: 2s
                  exclusive: true
                """)
        )
