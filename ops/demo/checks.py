"""The demo's expectations, each from what outsiders can see: answers, the list of runs, the partner's own log."""

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ops.demo.commands import Outcome
from ops.demo.expectations import Expectations
from processors.adapters.postgres.scripts import query

if TYPE_CHECKING:
    from ops.demo.scenario import Story

OK, ACCEPTED, UNAVAILABLE = 200, 202, 503
EVENT = "billing.invoice.finalized"


def check_published(expectations: Expectations, published: Outcome) -> None:
    kinds = Counter(item["kind"] for document in published.documents for item in document["published"])
    expectations.expect("both workflows are published", kinds["workflow"] == len(("yaml", "python")), dict(kinds))


def check_doors(expectations: Expectations, story: "Story", repeated: int) -> None:
    """The four answers of the webhook door, and the two of a run by hand."""
    first = [outcome.documents[0] for outcome in story.webhooks]
    again = [outcome.documents for outcome in story.webhooks if len(outcome.documents) > 1]
    accepted = sum(one["http_status"] == ACCEPTED and one["status"] == "created" for one in first)
    expectations.expect("every first webhook is answered 202", accepted == len(first), f"{accepted} of {len(first)}")
    same = sum(
        second["http_status"] == OK and second["run_id"] == one["run_id"] and second["key_age_seconds"] >= 0
        for one, second in again
    )
    expectations.expect(
        "every repetition is answered 200 with the first run id and the key's age",
        same == repeated,
        f"{same} of {repeated}",
    )
    _expect_refusals(expectations, "a wrong signature is answered 401", story.forged, 401, "E_SIGNATURE")
    _expect_refusals(expectations, "a clock ten minutes off is answered 408", story.skewed, 408, "E_TIMESTAMP_SKEW")
    code = story.without_key.problem.get("code")
    expectations.expect("a run by hand without a key is refused", code == "E_IDEMPOTENCY_KEY_REQUIRED", code)
    once, twice = story.manual.documents[0], story.manual_again.documents[0]
    expectations.expect(
        "a run by hand with the same key is the same run",
        once["status"] == "created" and twice["status"] == "deduplicated" and once["run_id"] == twice["run_id"],
        twice["status"],
    )


def _expect_refusals(expectations: Expectations, text: str, outcomes: list[Outcome], status: int, code: str) -> None:
    answers = [outcome.documents[0] for outcome in outcomes]
    fitting = sum(one["http_status"] == status and one["code"] == code for one in answers)
    expectations.expect(text, fitting == len(outcomes) > 0, f"{fitting} of {len(outcomes)}, {code}")


def check_runs(expectations: Expectations, story: "Story", expected: int) -> None:
    states = Counter(run["state"] for run in story.runs)
    expectations.expect("every accepted event is exactly one run", len(story.runs) == expected, len(story.runs))
    expectations.expect("every run has succeeded", states["succeeded"] == expected, dict(states))
    failures = Counter(entry["key"] for entry in story.partner_log if entry["status"] == UNAVAILABLE)
    applied = Counter(entry["key"] for entry in story.partner_log if entry["status"] == OK)
    healed = sum(applied[key] == 1 for key in failures)
    expectations.expect(
        "every 503 of the partner was tried again under the same key, and applied once",
        0 < len(failures) == healed,
        f"{len(failures)} calls failed, {healed} healed",
    )
    repeated = [key for key, count in applied.items() if count > 1]
    expectations.expect("no effect was applied twice", not repeated, f"{len(applied)} effects")


def check_order(expectations: Expectations, story: "Story", keys: int, revisions: int) -> None:
    """Acceptance order is the order of production in each key. Execution is seen twice: by the partner, which took
    the calls, and in the list of runs, where one starts after the one before has ended.
    """
    seen: defaultdict[str, list[int]] = defaultdict(list)
    for entry in story.partner_log:
        body = entry["body"] or {}
        if entry["status"] == OK and str(body.get("invoiceId", "")).startswith("inv_"):
            seen[body["invoiceId"]].append(body["revision"])
    right = sum(revisions_seen == list(range(revisions)) for revisions_seen in seen.values())
    expectations.expect(
        "per partition key, the partner took the calls in order of acceptance", right == keys, f"{right} of {keys} keys"
    )
    lanes: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in sorted(story.runs, key=lambda one: one["started_at"] or ""):
        if run["event_type"] == EVENT and run["ended_at"]:
            lanes[run["partition_key"]].append(run)
    apart = sum(all(one["ended_at"] <= two["started_at"] for one, two in pairwise(lane)) for lane in lanes.values())
    in_order = sum(
        [run["idempotency_key"] for run in lane]
        == [f"invoice:inv_{key[-3:]}:finalized:v{revision}" for revision in range(revisions)]
        for key, lane in lanes.items()
    )
    expectations.expect(
        "per partition key, runs start in order of acceptance", in_order == keys, f"{in_order} of {keys}"
    )
    expectations.expect("per partition key, no two runs were ever active at once", apart == keys, f"{apart} of {keys}")


async def check_invoices(expectations: Expectations, dsn: str) -> None:
    """The effect in the project's own database."""
    rows = await query(dsn, Path(__file__).with_name("states.sql").read_text("utf-8"))
    counts = {str(status): int(count) for status, count in rows}
    expectations.expect("every invoice is paid in the project's database", set(counts) == {"paid"}, counts)
