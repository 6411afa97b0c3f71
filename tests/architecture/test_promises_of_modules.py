"""Every module opens with its promise, and is named after something of the domain."""

import ast

from tests.support.sources import PRODUCT, modules, name_of, parsed

PROMISE_LINES = 6
EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc", "tools"}
SHORTEST_NAME = 3


def test_every_module_states_its_promise_in_a_few_lines() -> None:
    wrong = {}
    for path in modules(*PRODUCT, "tests/support"):
        if not path.read_text("utf-8").strip():
            continue  # an empty __init__ promises nothing
        promise = ast.get_docstring(parsed(path)) or ""
        lines = [line for line in promise.splitlines() if line.strip()]
        if not 1 <= len(lines) <= PROMISE_LINES:
            wrong[name_of(path)] = f"{len(lines)} lines"
    assert not wrong, f"a docstring of one to {PROMISE_LINES} lines is expected: {wrong}"


def test_no_module_is_named_after_nothing() -> None:
    folders_and_files = {part for path in modules(*PRODUCT) for part in path.relative_to(path.parents[-2]).parts}
    names = {part.removesuffix(".py") for part in folders_and_files}
    assert not names & EMPTY_NAMES
    own = {path.stem for path in modules(*PRODUCT)}
    assert not {name for name in own if len(name) < SHORTEST_NAME}
