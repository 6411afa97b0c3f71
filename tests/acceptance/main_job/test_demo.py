"""`make demo` is the main job: it passes on the broker that the suite runs on."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.timeout(240)
async def test_the_demo_holds_every_expectation_and_leaves_nothing_behind(broker_kind: str, passable: Path) -> None:
    home, scratch = passable / "home", passable / "scratch"
    home.mkdir()
    scratch.mkdir(mode=0o777)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ops.demo", "--kafka", broker_kind,
        cwd=ROOT,
        env={**os.environ, "HOME": str(home), "TMPDIR": str(scratch)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, (out + err).decode()
    assert "15 of 15 expectations held" in out.decode()
    assert list(home.iterdir()) == []
    assert list(scratch.iterdir()) == []
