"""Importing an author's bundle, and saying where it is broken.

The bundle's folder goes first on the import path, so that its local modules are found; the entry file is
imported under its own name, or one that cannot hide a module of Python's.
"""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from anthares44.automation.errors import message_of, relative_to, type_of
from anthares44.automation.workflow import Workflow, declared, find_workflow

_NAMED = 20


class LoadError(Exception):
    def __init__(
        self,
        code: str,
        message: str,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.file = file
        self.line = line
        self.column = column


def load(path: str, entry: str, workflow: str, version: str) -> Workflow:
    """Import the entry file, once, and find the workflow in it. Raises LoadError."""
    file = Path(path) / entry
    if not file.is_file():
        raise LoadError("E_BUNDLE_INVALID", f"the bundle has no file {entry}", entry)
    if path not in sys.path:
        sys.path.insert(0, path)
    name = _module_name(entry)
    if name not in sys.modules:
        _import(name, file, path)
    found = find_workflow(workflow, version)
    if found is None:
        known = ", ".join(f"{one.name} version {one.version}" for one in declared()[:_NAMED]) or "none"
        message = f"{entry} declares no workflow {workflow!r} version {version}; it declares {known}"
        raise LoadError("E_VERSION_UNKNOWN", message, entry)
    return found


def _module_name(entry: str) -> str:
    name = Path(entry).with_suffix("").as_posix().replace("/", ".")
    top = name.partition(".")[0]
    taken = top in sys.stdlib_module_names or top in ("anthares44", "__main__")
    return f"bundle_{name}" if taken else name


def _import(name: str, file: Path, root: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise LoadError("E_BUNDLE_INVALID", f"{file.name} is no Python file", file.name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # an exit asked for at import is a fault of the bundle too
        del sys.modules[name]
        raise _broken(error, root) from error
    return module


def _broken(error: BaseException, root: str) -> LoadError:
    message = f"{type_of(error)}: {message_of(error)}"
    if isinstance(error, SyntaxError) and error.filename:
        file = relative_to(root, error.filename) or Path(error.filename).name
        return LoadError("E_BUNDLE_IMPORT", f"{type_of(error)}: {error.msg}", file, error.lineno, error.offset)
    place: tuple[str | None, int | None, int | None] = (None, None, None)
    for frame in traceback.extract_tb(error.__traceback__):
        inside = relative_to(root, frame.filename)
        if inside is not None:
            column = None if frame.colno is None else frame.colno + 1
            place = (inside, frame.lineno, column)
    return LoadError("E_BUNDLE_IMPORT", message, *place)
