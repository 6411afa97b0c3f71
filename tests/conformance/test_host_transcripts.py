"""Golden transcripts: what an executor says and what a host of any language must answer.

A line of a transcript is `{"in": [...]}`, one frame to the host; `{"out": [...]}`, its next messages in this
order (heartbeats and log lines are not counted); `{"begun": [run, item]}`, a wait until the function of this attempt
is being called; or `{"exit": code}`. In what is sent, "<soon>" stands for a moment in the future and "<bundle>" for the
folder of the bundle. In what is expected, "<any>" is any value.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.step_host import BUNDLES, PATIENCE, StepHost, soon

TRANSCRIPTS = sorted((Path(__file__).with_name("transcripts")).glob("*.jsonl"))


def filled(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: filled(value) for name, value in part.items()}
    if isinstance(part, list):
        return [filled(value) for value in part]
    return {"<soon>": soon(), "<bundle>": str(BUNDLES)}.get(part, part) if isinstance(part, str) else part


def fits(expected: Any, seen: Any) -> bool:
    """Equal, fields that the transcript does not name aside: a newer host may say more."""
    if expected == "<any>":
        return True
    if isinstance(expected, dict) and isinstance(seen, dict):
        return all(name in seen and fits(value, seen[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(seen, list):
        return len(expected) == len(seen) and all(map(fits, expected, seen))
    return type(expected) is type(seen) and expected == seen


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_host_answers_as_written(path: Path):
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert set(lines[0]) == {"about"}
    with StepHost() as host:
        for number, line in enumerate(lines[1:], 2):
            where = f"{path.name}:{number}"
            if "in" in line:
                host.send(*filled(line["in"]))
            elif "begun" in line:
                host.until_begun(*line["begun"])
            elif "exit" in line:
                assert host.process.wait(PATIENCE) == line["exit"], where
            else:
                seen = [host.receive() for _ in line["out"]]
                assert fits(line["out"], seen), f"{where}\nexpected {line['out']}\nseen     {seen}"


def test_a_host_greets_first():
    with StepHost() as host:
        assert fits(
            {
                "t": "HELLO",
                "versions": [1],
                "language": "python",
                "sdk": "<any>",
                "capabilities": "<any>",
                "pid": host.process.pid,
            },
            host.hello,
        )
