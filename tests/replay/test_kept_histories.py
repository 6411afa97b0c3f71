"""Histories written by earlier releases are played as they were then, from every point of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from anthares44.automation.replay import Replay
from tests.replay.bodies import BODIES
from tests.unit.sdk.lives import new_run, told

HISTORIES = sorted(Path(__file__).with_name("histories").glob("*.json"))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_kept_history_is_played_as_it_was(path: Path):
    kept = json.loads(path.read_text("utf-8"))
    for cut, expected in enumerate(kept["resumed"]):
        run = new_run(BODIES[kept["body"]])
        turn = Replay(run, kept["history"][:cut]).play(10_000)
        assert run.blocked is None, (path.stem, cut, run.blocked)
        assert turn is not None
        assert json.loads(json.dumps(told(turn))) == expected, (path.stem, cut)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_kept_history_does_not_fit_another_body(path: Path):
    kept = json.loads(path.read_text("utf-8"))
    for name, body in BODIES.items():
        run = new_run(body)
        Replay(run, kept["history"]).play(10_000)
        assert (run.blocked is None) == (name == kept["body"])
        if run.blocked is not None:
            assert run.blocked.code == "E_NONDETERMINISTIC_REPLAY"


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_history_with_a_part_changed_does_not_fit(path: Path):
    kept = json.loads(path.read_text("utf-8"))
    for place in range(len(kept["history"])):
        for change in ({"item": "renamed"}, {"after": 99}, {"kind": "approval"}):
            history: list[dict[str, Any]] = json.loads(json.dumps(kept["history"]))
            history[place] |= change
            run = new_run(BODIES[kept["body"]])
            Replay(run, history).play(10_000)
            assert run.blocked is not None, (place, change)
            assert run.blocked.code == "E_NONDETERMINISTIC_REPLAY"
            assert run.blocked.expected
