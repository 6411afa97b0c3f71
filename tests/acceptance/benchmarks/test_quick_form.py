"""The quick form of the benchmark, with loads smaller yet: every figure is there, and the last line is JSON."""

import asyncio
import json
import sys

import pytest

from benchmarks.figures import TARGETS
from tests.support.sources import ROOT

BUDGETS = {"budget_kafka_ms", "budget_rest_ms", "cpu_s_per_1000_by_part", "floor_cpu_s_per_1000_by_part"}


@pytest.mark.timeout(400)
async def test_every_figure_is_in_the_last_line() -> None:
    command = (sys.executable, "-m", "benchmarks", "--quick", "--divide", "25")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    figures = json.loads(out.decode().splitlines()[-1])
    assert process.returncode == 0, (figures.get("not_measured"), err.decode()[-2000:])
    assert {target.name for target in TARGETS} | BUDGETS <= set(figures)
    assert all(figures[target.name] >= 0 for target in TARGETS)
    assert set(figures["ranges"]) >= {target.name for target in TARGETS}
    assert figures["machine"]["fsync"] == figures["machine"]["synchronous_commit"] == "on"
