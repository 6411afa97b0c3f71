"""The checklist of durable pipelines names tests, and each of them is there."""

import ast
import re

from tests.support.documents import page
from tests.support.sources import ROOT, parsed

NAME = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_every_line_of_the_checklist_names_tests_that_exist() -> None:
    rows = page("docs/guides/durable-pipelines.md").rows()
    assert len(rows) == 10
    named = [NAME.findall(row[2]) for row in rows]
    assert all(named), "a line without a test"
    lost = [f"{file}::{name}" for one in named for file, name in one if name not in functions_of(file)]
    assert not lost


def functions_of(file: str) -> set[str]:
    path = ROOT / "tests" / file
    if not path.exists():
        return set()
    return {node.name for node in parsed(path).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
