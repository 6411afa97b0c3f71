"""The project's own files, for tests that read them."""

import ast
import functools
import gc
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("schemas", "topology", "processors", "ops", "sdk/anthares44")
AROUND = ("tests", "examples", "benchmarks", "docs")
SKIPPED = {"__pycache__", "target", ".venv", ".git"}


def files(*folders: str, pattern: str = "*") -> list[Path]:
    """Files below these folders of the project, without what was built or fetched."""
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob(pattern)
        if path.is_file() and not SKIPPED.intersection(path.relative_to(ROOT).parts)
    )


def modules(*folders: str) -> list[Path]:
    return files(*folders, pattern="*.py")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Without the collector: hypothesis is called back by it, and CPython 3.11 takes a call in the middle of making a
    tree for a broken depth (SystemError: AST constructor recursion depth mismatch).
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text("utf-8"), str(path))
    finally:
        if was_on:
            gc.enable()


def docstrings(tree: ast.Module) -> set[int]:
    """Identities of the constants that are docstrings."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, holders) and node.body and isinstance(node.body[0], ast.Expr)
    }


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and content of every string in a module that is not a docstring; parts of f-strings too."""
    tree = parsed(path)
    skipped = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value
