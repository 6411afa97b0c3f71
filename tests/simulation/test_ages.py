"""Events that grow too old on the way: the simulation meets each of their fates, and holds all to what is promised."""

from collections import Counter

from tests.simulation.simulation import simulate

SEEDS = 60


def test_some_are_too_old_for_ingest_some_when_their_turn_comes_and_some_are_in_time() -> None:
    fates: Counter[str] = Counter()
    for seed in range(SEEDS):
        fates += simulate(seed).ages
    assert min(fates[fate] for fate in ("refused", "late", "timely")) > 0, fates
