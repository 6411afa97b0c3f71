"""A seed is enough: the same one tells the same story, in this process and in any other."""

import os
import subprocess
import sys

import pytest

from tests.simulation.simulation import simulate

SEED = 51


def test_the_same_seed_tells_the_same_story() -> None:
    assert simulate(SEED) == simulate(SEED)


def test_another_seed_tells_another_story() -> None:
    assert simulate(SEED).digest != simulate(SEED + 1).digest


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_story_does_not_depend_on_the_order_of_hashes(hash_seed: str) -> None:
    program = f"from tests.simulation.simulation import simulate; print(simulate({SEED}).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [simulate(SEED).digest]


def test_virtual_time_costs_no_time() -> None:
    """A simulation that holds covers more than the faults' sixteen seconds, and ends by itself."""
    outcome = simulate(SEED)
    assert outcome.virtual_seconds - 1_000 > 16
    assert outcome.runs > 0
