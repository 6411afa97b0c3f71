"""Crash points: each is a place in the product, and a test kills a process there."""

import ast
import re

from processors.ports.crash_points import CRASH_POINTS
from tests.support.sources import PRODUCT, modules, parsed, texts

TESTS = "tests/acceptance/crash_points"


def test_every_name_is_reached_at_one_place_and_every_place_has_a_name() -> None:
    reached = [
        node.args[0].value
        for path in modules(*PRODUCT)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "reach"
        and isinstance(node.args[0], ast.Constant)
    ]
    assert sorted(reached) == sorted(CRASH_POINTS)


def test_every_name_has_a_test_that_kills_there() -> None:
    told = {name for path in modules(TESTS) for _, text in texts(path) for name in re.findall(r"\w+", text)}
    assert set(CRASH_POINTS) - told == set()
