"""Small by default, with a ceiling: an exception is a line here, with its reason."""

import ast

from tests.support.sources import AROUND, PRODUCT, modules, name_of, parsed

MODULE_LINES = 400
FUNCTION_LINES = 50

LONG_MODULES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}


def test_no_module_is_longer_than_the_ceiling() -> None:
    sizes = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in modules(*PRODUCT, *AROUND)}
    too_long = {name: lines for name, lines in sizes.items() if lines > MODULE_LINES and name not in LONG_MODULES}
    assert not too_long, f"split these, or name them with a reason: {too_long}"


def test_no_function_is_longer_than_the_ceiling() -> None:
    too_long = {
        f"{name_of(path)}:{node.name}": length
        for path in modules(*PRODUCT, *AROUND)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
        if f"{name_of(path)}:{node.name}" not in LONG_FUNCTIONS
    }
    assert not too_long, f"split these, or name them with a reason: {too_long}"


def test_an_exception_that_is_no_longer_needed_is_taken_out() -> None:
    known = {name_of(path): path for path in modules(*PRODUCT, *AROUND)}
    for name in LONG_MODULES:
        assert name in known, f"{name} does not exist"
        assert len(known[name].read_text("utf-8").splitlines()) > MODULE_LINES, f"{name} is short again"
    for name in LONG_FUNCTIONS:
        assert name.partition(":")[0] in known, f"{name} does not exist"
