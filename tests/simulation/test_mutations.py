"""The simulation can fail: each rule broken on purpose is found by the invariant that it belongs to, within a few
hundred seeds.
"""

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
CASES = {
    "a journal that ignores the fence": (Parts(journal=mutations.FencelessJournal), {LIVE_FENCE}),
    "a journal that claims what others own": (Parts(journal=mutations.GreedyJournal), {ONE_OWNER}),
    "a journal that takes a commit without an answer for lost": (
        Parts(journal=mutations.GuessingJournal),
        {LIVE_FENCE, ONE_SUCCESS, ATTEMPT_NUMBERS, ALL_ENDS},
    ),
    "a relay without a horizon": (Parts(relay_store=mutations.StorelessHorizon), {EXACT_OUTBOX}),
    "a relay that moves its cursor first": (Parts(relay_store=mutations.HastyRelayStore), {EXACT_OUTBOX}),
    "an ingest that moves its offsets before the commit": (Parts(ingest_log=mutations.HastyIngestLog), {EXACT_RUNS}),
    "an ingest that forgets what it has seen": (
        Parts(ingest_log=mutations.ForgetfulIngestLog),
        {EXACT_RUNS, TERMINAL_STAYS, NO_ROLE_DIES},
    ),
    "a scheduler that grants the runs of live sessions again": (
        Parts(schedule=mutations.TrigHappySchedule),
        {LIVE_FENCE, ONE_OWNER},
    ),
    "a scheduler that counts no slots": (Parts(schedule=mutations.GenerousSchedule), {QUEUE_LIMIT}),
    "a scheduler that does not wait for a lane's turn": (Parts(schedule=mutations.PushySchedule), {LANE_ORDER}),
    "an executor that acts before its commit": (Parts(executor=mutations.HastyExecutor), {COMMIT_FIRST}),
}


def first_broken(parts: Parts) -> tuple[int, Broken] | None:
    for seed in range(MOST_SEEDS):
        try:
            simulate(seed, parts, faults=LOSSES)
        except Broken as found:
            return seed, found
    return None


@pytest.mark.parametrize("rule", CASES)
def test_a_broken_rule_is_found(rule: str) -> None:
    parts, names = CASES[rule]
    found = first_broken(parts)
    assert found is not None, f"{MOST_SEEDS} seeds did not find {rule}"
    seed, broken = found
    assert broken.invariant in names, str(broken)
    assert f"--seed {seed}" in str(broken)
