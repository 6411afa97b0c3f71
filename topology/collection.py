"""Gathers the files to publish from a disk: those named, those of a folder, and the modules they import.

In a folder only files that declare something are taken: other YAML, tests and hidden folders are not.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from schemas.errors import Place, Refused
from topology.code_workflows.bundles import close_over
from topology.code_workflows.declarations import declares_workflow
from topology.code_workflows.source import SDK, read_python
from topology.topology_files import PREFIXES, SECTIONS
from topology.yaml_source import MAX_BYTES as MAX_YAML
from topology.yaml_source import read_yaml

MAX_FILES = 1000
MAX_FILE = 5 * 1024 * 1024

_SUFFIXES = (".yaml", ".yml", ".py")
_SKIPPED_FOLDERS = frozenset({"tests", "test", "__pycache__", "node_modules", "dist", "build"})


def collect(paths: Sequence[Path]) -> dict[str, str]:
    """Texts by name: relative to the working folder where all lie in it, else to what they have in common.
    Raises Refused.
    """
    roots = [Path(path) for path in paths]
    base = _base_of(roots)
    found: dict[str, str] = {}
    for root in roots:
        for path in _chosen(root, base):
            name = _name(path, base)
            found[name] = _read(path, name)
            if path.suffix == ".py":
                _add_modules(name, found, base)
            if len(found) > MAX_FILES:
                raise Refused("E_SPEC_INVALID", f"more than {MAX_FILES} files; name fewer of them")
    if not found:
        raise Refused("E_SPEC_INVALID", "nothing to publish: no workflow or topology file was found")
    return found


def _base_of(roots: Sequence[Path]) -> Path:
    here = Path.cwd().resolve()
    folders = [root.resolve() if root.is_dir() else root.resolve().parent for root in roots]
    if not folders or all(folder.is_relative_to(here) for folder in folders):
        return here
    return Path(os.path.commonpath(folders))


def _name(path: Path, base: Path) -> str:
    return PurePosixPath(path.resolve().relative_to(base)).as_posix()


def _chosen(root: Path, base: Path) -> Iterator[Path]:
    if root.is_dir():
        yield from _declaring(root, base)
    elif not root.exists():
        raise Refused("E_SPEC_INVALID", "this file does not exist", Place(str(root), 1, 1))
    elif root.suffix not in _SUFFIXES:
        raise Refused("E_SPEC_INVALID", "only .yaml, .yml and .py files are published", Place(str(root), 1, 1))
    else:
        yield root


def _declaring(folder: Path, base: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        for name in sorted(names):
            path = Path(parent, name)
            if path.suffix in _SUFFIXES and not _is_test(name) and path.resolve().is_relative_to(base):
                text = _read(path, _name(path, base))
                if _declares_code(name, text) if path.suffix == ".py" else _declares_shape(name, text):
                    yield path


def _is_test(name: str) -> bool:
    return name.startswith((".", "test_", "conftest.")) or name.endswith("_test.py")


def _declares_code(name: str, text: str) -> bool:
    """A file that cannot be read but names the SDK is taken, so that its error is seen."""
    if SDK not in text:
        return False
    try:
        return declares_workflow(read_python(name, text))
    except Refused:
        return True


def _declares_shape(name: str, text: str) -> bool:
    """A file that cannot be read is taken, so that its error is seen."""
    try:
        value = read_yaml(name, text).value
    except Refused:
        return True
    if isinstance(value, dict):
        keys = value.keys()
        return "steps" in keys or bool(keys & set(SECTIONS)) or _is_item(value)
    return isinstance(value, list) and any(_is_item(item) for item in value)


def _is_item(value: object) -> bool:
    name = value.get("id") if isinstance(value, dict) else None
    return isinstance(name, str) and name.startswith(tuple(PREFIXES.values()))


def _add_modules(name: str, found: dict[str, str], base: Path) -> None:
    """The local modules that a Python file imports. What cannot be parsed is left to the reader of it all."""
    folder = PurePosixPath(name).parent

    def read(path: str) -> str | None:
        at = base / folder / path
        inside = str(folder / path)
        if not at.is_file() or not at.resolve().is_relative_to(base):
            return None
        found[inside] = found.get(inside) or _read(at, inside)
        return found[inside]

    try:
        close_over(read_python(name, found[name]), read)
    except Refused:
        return


def _read(path: Path, name: str) -> str:
    limit = MAX_FILE if path.suffix == ".py" else MAX_YAML * 2
    try:
        told = path.stat()
        if not stat.S_ISREG(told.st_mode):  # a pipe would be waited for
            raise Refused("E_SPEC_INVALID", "this is no regular file", Place(name, 1, 1))
        if told.st_size > limit:
            raise Refused("E_SPEC_INVALID", f"the file is larger than {limit} bytes", Place(name, 1, 1))
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("E_SPEC_INVALID", f"the file is not UTF-8 (byte {error.start})", Place(name, 1, 1)) from error
    except OSError as error:
        raise Refused("E_SPEC_INVALID", f"the file cannot be read: {error.strerror}", Place(name, 1, 1)) from error
