"""The simulation can fail: each rule broken on purpose is found by the invariant that it belongs to, within a few
hundred seeds.
"""

from dataclasses import dataclass

import pytest

from tests.simulation import mutations
from tests.simulation.invariants import (
    ALL_ENDS,
    ATTEMPT_NUMBERS,
    COMMIT_FIRST,
    EXACT_OUTBOX,
    EXACT_RUNS,
    LANE_ORDER,
    LIVE_FENCE,
    NEVER_BEGUN,
    NO_ROLE_DIES,
    ONE_OWNER,
    ONE_SUCCESS,
    QUEUE_LIMIT,
    TERMINAL_STAYS,
)
from tests.simulation.nodes import Parts
from tests.simulation.simulation import Broken, simulate

MOST_SEEDS = 300
LOSSES = ("crash", "break_connection", "slow_commits", "bumpy_network")  # of whatever is under way
LOST_ANSWERS = ("break_connection", "bumpy_network")


@dataclass(frozen=True, slots=True)
class Case:
    """`names` are the invariants that may find it first, `faults` what brings it about."""

    parts: Parts
    names: frozenset[str]
    faults: tuple[str, ...] = LOSSES


def found_by(*names: str) -> frozenset[str]:
    return frozenset(names)


CASES = {
    "a journal that ignores the fence": Case(Parts(journal=mutations.FencelessJournal), found_by(LIVE_FENCE)),
    "a journal that claims what others own": Case(Parts(journal=mutations.GreedyJournal), found_by(ONE_OWNER)),
    "a journal that takes a commit without an answer for lost": Case(
        Parts(journal=mutations.GuessingJournal),
        found_by(LIVE_FENCE, ONE_SUCCESS, ATTEMPT_NUMBERS, ALL_ENDS),
        LOST_ANSWERS,
    ),
    "a journal that knows of no age of events": Case(Parts(journal=mutations.AgelessJournal), found_by(NEVER_BEGUN)),
    "a relay without a horizon": Case(Parts(relay_store=mutations.RelayWithoutHorizon), found_by(EXACT_OUTBOX)),
    "a relay that moves its cursor first": Case(Parts(relay_store=mutations.HastyRelayStore), found_by(EXACT_OUTBOX)),
    "a relay that never misses what was lost at an end": Case(
        Parts(relay_store=mutations.BlindRelayStore), found_by(EXACT_RUNS), ("record_lost",)
    ),
    "an ingest that moves its offsets before the commit": Case(
        # A crash between the two loses runs; a broken connection sends them again first, out of order.
        Parts(ingest_log=mutations.HastyIngestLog),
        found_by(EXACT_RUNS),
        ("crash",),
    ),
    "an ingest that forgets what it has seen": Case(
        Parts(ingest_log=mutations.ForgetfulIngestLog), found_by(EXACT_RUNS, TERMINAL_STAYS, NO_ROLE_DIES)
    ),
    "an ingest that keeps nothing of what it puts off": Case(
        Parts(ingest_log=mutations.ForgettingIngestLog), found_by(EXACT_RUNS), ("storage_away",)
    ),
    "an ingest that lets others pass what keeps its order": Case(
        Parts(ingest=mutations.PassingIngest), found_by(LANE_ORDER), ("storage_away",)
    ),
    "a scheduler that grants the runs of live sessions again": Case(
        Parts(schedule=mutations.HastySchedule), found_by(LIVE_FENCE, ONE_OWNER)
    ),
    "a scheduler that counts no slots": Case(Parts(schedule=mutations.GenerousSchedule), found_by(QUEUE_LIMIT)),
    "a scheduler that does not wait for a lane's turn": Case(
        Parts(schedule=mutations.PushySchedule), found_by(LANE_ORDER)
    ),
    "an executor that acts before its commit": Case(Parts(executor=mutations.HastyExecutor), found_by(COMMIT_FIRST)),
}


def first_broken(case: Case) -> tuple[int, Broken] | None:
    for seed in range(MOST_SEEDS):
        try:
            simulate(seed, case.parts, faults=case.faults)
        except Broken as found:
            return seed, found
    return None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", CASES)
def test_a_broken_rule_is_found(rule: str) -> None:
    found = first_broken(CASES[rule])
    assert found is not None, f"{MOST_SEEDS} seeds did not find {rule}"
    seed, broken = found
    assert broken.invariant in CASES[rule].names, str(broken)
    assert f"--seed {seed}" in str(broken)
