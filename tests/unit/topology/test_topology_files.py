"""Topology files: triggers, connectors and queues."""

import pytest

from schemas.errors import Place, Refused
from topology.publication import Publication, read_files
from topology.queues import default_queue
from topology.triggers import TriggerSpec

REFUND = """\
- id: trg_refund_large
  type: event
  event: billing.refund.requested
  filter: "data.amountCents > 500000 && data.currency == 'BRL'"
  workflow: wf_refund_review
  deliver:
    dropOnFilterMiss: true
"""
SCHEDULE = """\
- id: trg_nightly_reconcile
  type: schedule
  cron: "15 3 * * *"
  tz: America/Sao_Paulo
  workflow: wf_reconcile_ledger
  dstPolicy: skip-nonexistent
  overlap: skip
  catchUp:
    enabled: true
    maxOccurrences: 3
    maxAge: 12h
"""
ERP = """\
- id: con_erp_private
  type: vpn/http
  baseUrl: https://erp.interno.local
  operations: { find: { path: /find } }
"""


def publish(source: str) -> Publication:
    return read_files({"t.yaml": source})


def refusal(source: str) -> Refused:
    with pytest.raises(Refused) as caught:
        publish(source)
    return caught.value


def test_a_list_of_items_is_read() -> None:
    publication = publish(REFUND + "- { id: q_slow, maxConcurrency: 5, ordering: by-partition, maxAttempts: 2 }\n")
    (trigger,) = publication.triggers
    assert (trigger.id, trigger.workflow, trigger.version) == ("trg_refund_large", "wf_refund_review", None)
    assert trigger.accepts({"data": {"amountCents": 500001, "currency": "BRL"}})
    assert not trigger.accepts({"data": {"amountCents": 1, "currency": "BRL"}})
    (queue,) = publication.queues
    assert (queue.max_concurrency, queue.ordering, queue.max_attempts) == (5, "by-partition", 2)
    assert [(one.target, one.id, one.part) for one in publication.references] == [
        ("workflow", "wf_refund_review", None)
    ]


def test_sections_are_read() -> None:
    publication = publish(
        """\
triggers:
  - id: trg_hook
    type: webhook
    workflow: wf_a
    version: 2
    requireIdempotencyKey: true
    partitionKey: "{{ data.k }}"
  - { id: trg_hand, type: manual, workflow: wf_a, version: latest }
connectors:
  - { id: con_a, type: http, baseUrl: "http://127.0.0.1:1", operations: { x: { path: / } } }
queues:
  - { id: q_a }
"""
    )
    hook, hand = publication.triggers
    assert (hook.type, hook.version, hook.require_idempotency_key) == ("webhook", 2, True)
    assert hook.partition_of({"data": {"k": 7}}) == "7"
    assert hook.partition_of({"data": {"k": "x"}}) == "x"
    assert (hand.type, hand.version) == ("manual", None)
    assert publication.connectors[0].id == "con_a"
    assert publication.queues[0].max_concurrency == 100


def test_how_old_an_event_may_be_is_part_of_its_trigger() -> None:
    [refund] = publish(REFUND.replace("dropOnFilterMiss: true", "maxAge: 6h")).triggers
    assert refund.max_age == 6 * 3600
    assert TriggerSpec.from_json(refund.to_json()) == refund


def test_what_a_trigger_does_not_say_leaves_its_text_as_it_was_before_it_could_be_said() -> None:
    [refund] = publish(REFUND).triggers
    assert "maxAge" not in refund.to_json()
    assert "dropOnFilterMiss" not in refund.to_json()
    [keeps] = publish(REFUND.replace("dropOnFilterMiss: true", "dropOnFilterMiss: false")).triggers
    assert not TriggerSpec.from_json(keeps.to_json()).drop_on_filter_miss


def test_one_item_may_be_the_whole_file() -> None:
    assert publish("id: q_a\nmaxConcurrency: 3\n").queues[0].max_concurrency == 3


def test_the_default_queue_is_as_the_guide_says() -> None:
    queue = default_queue()
    assert (queue.id, queue.max_concurrency, queue.ordering, queue.max_attempts) == ("q_default", 100, "none", 5)


@pytest.mark.parametrize(
    ("source", "line", "column", "says"),
    [
        (SCHEDULE, 2, 9, "`schedule` are not available in this version"),
        (SCHEDULE, 2, 9, "let a cron of yours call `a44 automation run`"),
        (SCHEDULE.replace("type: schedule", "type: cron"), 2, 9, "known here: `event`, `manual`, `webhook`"),
        (ERP, 2, 9, "`vpn/http` is not available in this version"),
        (ERP.replace("vpn/http", "http") + "  network: vpn_x\n", 5, 3, "`network` is not available"),
        (ERP.replace("vpn/http", "http") + "  circuitBreaker: {}\n", 5, 3, "`circuitBreaker` is not available"),
        (
            ERP.replace("vpn/http", "http") + "  auth: { kind: oauth2-client-credentials, secretRef: sec_x }\n",
            5,
            17,
            "not available in this version",
        ),
        (REFUND.replace("dropOnFilterMiss: true", "maxAge: soon"), 7, 13, "length of time"),
        (REFUND.replace("dropOnFilterMiss: true", "dropOnFilterMiss: no way"), 7, 23, "true or false"),
        (REFUND.replace("type: event", "type: evnt"), 2, 9, "`event`?"),
        (REFUND.replace("  type: event\n", ""), 1, 3, "`type`"),
        (REFUND.replace("  event: billing.refund.requested\n", ""), 1, 3, "`event` is missing"),
        (REFUND.replace("workflow: wf_", "workflow: "), 5, 13, "`wf_invoice_settle`"),
        (REFUND.replace("workflow: wf", "workflow: wf_x\n  filtr: wf"), 6, 3, "`filter`?"),
        (REFUND.replace("trg_refund", "refund"), 1, 7, "`trg_`"),
        (REFUND.replace("trg_refund_large", "trg_Refund"), 1, 7, "a trigger's id"),
        (REFUND.replace("500000 &&", "500000 &"), 4, 38, "yntax error"),
        (REFUND.replace("data.currency", "input.currency"), 4, 41, "`data`"),
        (REFUND.replace("  deliver", "  version: newest\n  deliver"), 6, 12, "a whole number"),
        ("triggers:\n  - id: q_a\n", 2, 9, "does not begin with `trg_`"),
        ("triggers: {}\n", 1, 11, "must be a list"),
        ("queues: [{id: q_default}]\n", 1, 15, "the project's own"),
        ("queues: [{id: q_a, maxConcurrency: 0}]\n", 1, 36, "greater than or equal to 1"),
        ("queues: [{id: q_a, ordering: fifo}]\n", 1, 30, "by-partition"),
        ("queues: [{id: q_a, visibilityTimeout: 30s}]\n", 1, 20, "not available"),
        ("queues: []\ntrigers: []\n", 2, 1, "`triggers`?"),
        ("- 1\n", 1, 3, "a mapping"),
        ("- type: event\n", 1, 3, "an `id` is missing"),
    ],
)
def test_a_mistake_is_refused_at_its_place(source: str, line: int, column: int, says: str) -> None:
    error = refusal(source)
    assert error.place == Place("t.yaml", line, column), str(error)
    assert says in error.message


@pytest.mark.parametrize(
    ("before", "after", "line", "column", "says"),
    [
        ('"15 3 * * *"', '"15 3 * *"', 3, 9, "`cron`"),
        ("  tz: America/Sao_Paulo\n", "", 1, 3, "`tz` is missing"),
        ("skip-nonexistent", "skip", 6, 14, "skip-nonexistent"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_told_beside_that_none_is_taken(
    before: str, after: str, line: int, column: int, says: str
) -> None:
    listed = refusal(SCHEDULE.replace(before, after)).details["errors"]
    assert isinstance(listed, list)
    (fault,) = [item for item in listed if "not available in this version" not in item["message"]]
    assert len(listed) == 2
    assert (fault["line"], fault["column"]) == (line, column)
    assert says in fault["message"]


def test_one_bad_item_hides_no_other() -> None:
    error = refusal(REFUND.replace("type: event", "type: x") + "- { id: q_a, ordering: x }\n- { id: con_a }\n")
    listed = error.details["errors"]
    assert isinstance(listed, list)
    assert [item["line"] for item in listed] == [2, 8, 9, 9, 9]


HOOK = "- {{ id: trg_hook, type: webhook, workflow: wf_x, verify: {verify} }}\n"


def test_a_webhook_says_whose_way_of_signing_it_takes() -> None:
    (named,) = publish(HOOK.format(verify="github")).triggers
    assert (named.preset, named.has_own_secret) == ("github", True)
    (given,) = publish(HOOK.format(verify="{ preset: stripe, secretRef: sec_hook, oldSecretRef: sec_before }")).triggers
    assert (given.preset, given.has_own_secret) == ("stripe", False)
    assert given.from_json(given.to_json()) == given


def test_a_webhook_that_says_nothing_of_it_is_stored_as_before() -> None:
    """Else every version that is published would have another checksum, and be refused."""
    (plain,) = publish("- { id: trg_hook, type: webhook, workflow: wf_x }\n").triggers
    assert "verify" not in plain.to_json()
    assert (plain.preset, plain.has_own_secret) == ("a44", True)


@pytest.mark.parametrize(
    ("verify", "words"),
    [
        ("none", "`preset` must be 'a44', 'standard-webhooks'"),
        ("false", "`verify` must be a mapping"),
        ("slack", "`slack` hands out its secret"),
        ("{ preset: a44, secretRef: sec_x }", "`webhook rotate`"),
        ("{ preset: github, oldSecretRef: sec_x }", "`oldSecretRef` names another secret beside"),
        ("{ preset: shopify, secretRef: sec_x, oldSecretRef: sec_x }", "`oldSecretRef` names another secret beside"),
        ("{ preset: shopify, secretRef: hush }", "not a reference to a secret"),
    ],
)
def test_a_way_of_signing_that_cannot_be_is_refused_at_its_place(verify: str, words: str) -> None:
    error = refusal(HOOK.format(verify=verify))
    assert words in error.message
    assert (error.code, error.place is not None and error.place.line) == ("E_SPEC_INVALID", 1)
