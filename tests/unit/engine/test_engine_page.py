"""docs/engine.md is what the engine's tables say, and all of them are told."""

import importlib.util
from types import ModuleType

import pytest

from processors.engine.moves import MOVES, TERMINAL, IllegalMove, Move, RunStatus, step
from schemas.records import Status
from tests.support.sources import ROOT


def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_engine", ROOT / "docs" / "draw_engine.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_page_is_current() -> None:
    page = (ROOT / "docs" / "engine.md").read_text("utf-8")
    assert page == drawing().drawn(), "draw it again: python docs/draw_engine.py"


def test_every_state_and_status_stands_on_the_page() -> None:
    page = drawing().drawn()
    assert all(f"`{one}`" in page for one in [*RunStatus, *Status])


def test_every_state_has_its_moves_and_terminal_ones_have_none() -> None:
    assert set(MOVES) == set(RunStatus)
    assert all(not MOVES[status] for status in TERMINAL)
    assert step(RunStatus.PENDING, Move.GRANT) is RunStatus.GRANTED


def test_an_illegal_move_names_state_and_move() -> None:
    with pytest.raises(IllegalMove, match="a run that is succeeded cannot take the move WAKE"):
        step(RunStatus.SUCCEEDED, Move.WAKE)
