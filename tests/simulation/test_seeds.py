"""Two thousand installations, each with its own faults: whatever happens, what must hold holds."""

import pytest

from tests.simulation.simulation import simulate

SEEDS = 2_000
CHUNK = 25


@pytest.mark.timeout(600)  # two seconds of work, on a machine that may be busy with other things
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_everything_holds_under_faults(first: int) -> None:
    for seed in range(first, first + CHUNK):
        simulate(seed)
