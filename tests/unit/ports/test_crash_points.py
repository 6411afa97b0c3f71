"""Crash points: what arms one, what a wrong name says, and that an unarmed process does nothing there."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from ops.cli.app import run
from processors.ports import crash_points
from schemas.errors import Refused

WALK = """
from processors.ports.crash_points import reach
for name in ("after_claim", "after_step_before_append", "after_claim", "after_claim"):
    print(name, flush=True)
    reach(name)
print("alive", flush=True)
"""


def walk(**environment: str) -> tuple[int, list[str]]:
    """How a process ends that comes to after_claim, after_step_before_append, after_claim, after_claim."""
    done = subprocess.run(
        [sys.executable, "-c", WALK], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.split()


def test_nothing_happens_where_nothing_is_armed() -> None:
    code, told = walk()
    assert (code, told[-1]) == (0, "alive")


@pytest.mark.parametrize(
    ("armed", "places"),
    [("after_claim", 1), ("after_step_before_append", 2), ("after_claim:2", 3), ("after_claim:3", 4)],
)
def test_the_process_is_killed_at_the_place_that_is_armed(armed: str, places: int) -> None:
    code, told = walk(A44_CRASH_POINT=armed)
    assert code == -signal.SIGKILL
    assert len(told) == places


def test_a_number_that_is_not_reached_kills_nobody() -> None:
    assert walk(A44_CRASH_POINT="after_claim:4")[0] == 0


def test_a_mark_is_needed_where_one_is_named_and_is_used_up(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    armed = {"A44_CRASH_POINT": "after_claim", "A44_CRASH_MARK": str(mark)}
    assert walk(**armed)[0] == 0
    mark.touch()
    assert walk(**armed) == (-signal.SIGKILL, ["after_claim"])
    assert not mark.exists()
    assert walk(**armed)[0] == 0


def test_the_text_of_the_mark_may_be_the_name(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    armed = {"A44_CRASH_POINT": crash_points.MARKED, "A44_CRASH_MARK": str(mark)}
    assert walk(**armed)[0] == 0
    mark.write_text("after_step_before_append\n")
    assert walk(**armed) == (-signal.SIGKILL, ["after_claim", "after_step_before_append"])
    assert not mark.exists()


@pytest.mark.parametrize("text", ["after_clam", "after_claim:0", "after_claim:x", "after_claim:", "marked", ":2"])
def test_a_wrong_name_is_a_clear_error_of_the_start(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("A44_CRASH_POINT", text)
    with pytest.raises(Refused, match=r"A44_CRASH_POINT is .*; expected one of .*after_claim.* Unset it") as refused:
        crash_points.check()
    assert refused.value.code == "E_CONFIG"
    assert run(["up", "--roles", "gateway"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert walk(A44_CRASH_POINT=text)[0] == 0  # an import is not where it is told


def test_an_unarmed_process_pays_one_comparison_for_a_place() -> None:
    """Reaching one calls nothing: no environment is read and no file is looked for."""
    called: list[str] = []

    def hear(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            called.append(frame.f_code.co_name if event == "call" else getattr(argument, "__name__", "?"))

    sys.setprofile(hear)
    try:
        crash_points.reach("after_claim")
    finally:
        sys.setprofile(None)
    assert called == ["reach", "setprofile"]
