"""Bundles: a workflow's file and the local modules that it imports, kept by the digest of their content.

Local means: found beside the entry file, as Python itself would with that folder first on its path.
"""

import ast
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from schemas.errors import Place, Refused
from topology.code_workflows.source import PythonFile, read_python

MAX_BYTES = 5 * 1024 * 1024
MAX_FILES = 500

ReadText = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Bundle:
    """`files` maps paths inside the bundle to their text; `digest` is SHA-256 over all of it, in hex."""

    digest: str
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Closure:
    """An entry file with its local modules by path inside the bundle, and what else it imports."""

    entry: str
    modules: dict[str, PythonFile]
    foreign: dict[str, Place]

    def bundle(self) -> Bundle:
        files = {name: module.source for name, module in sorted(self.modules.items())}
        return Bundle(digest_of(files), files)


def digest_of(files: dict[str, str]) -> str:
    """SHA-256 over the sorted paths and texts; one file cannot pass for two."""
    canonical = json.dumps(sorted(files.items()), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def close_over(entry: PythonFile, read: ReadText) -> Closure:
    """Follow the imports of `entry`. `read` gives the text of a file beside it, or None.
    Raises Refused E_BUNDLE_INVALID.
    """
    folder = PurePosixPath(entry.file).parent
    name = PurePosixPath(entry.file).name
    modules = {name: entry}
    foreign: dict[str, Place] = {}
    waiting = [name]
    size = len(entry.source.encode())
    while waiting:
        current = waiting.pop()
        for imported in _imports(current, modules[current]):
            found = _resolve(imported.dotted, read)
            if not found and imported.is_first:
                foreign.setdefault(imported.dotted.split(".")[0], imported.place)
            for path, text in found:
                if path in modules:
                    continue
                modules[path] = read_python(str(folder / path), text)
                waiting.append(path)
                size += len(text.encode())
                _check_size(len(modules), size, imported.place)
    return Closure(name, modules, foreign)


def not_installed(closure: Closure) -> Iterator[tuple[str, Place]]:
    """Imported modules that neither the bundle nor the standard library nor the SDK holds."""
    for name, place in closure.foreign.items():
        if name not in sys.stdlib_module_names and name != "anthares44":
            yield name, place


@dataclass(frozen=True, slots=True)
class _Import:
    """`is_first`: the module itself, not a name that may or may not be a module inside it."""

    dotted: str
    place: Place
    is_first: bool = True


def _imports(path: str, module: PythonFile) -> Iterator[_Import]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _Import(alias.name, module.place(node))
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(path, module, node)
            if base:
                yield _Import(base, module.place(node), is_first=node.level == 0)
            for alias in node.names:
                inner = f"{base}.{alias.name}" if base else alias.name
                yield _Import(inner, module.place(node), is_first=False)


def _absolute(path: str, module: PythonFile, node: ast.ImportFrom) -> str:
    """The dotted name that a `from` import names, seen from the bundle's root."""
    if node.level == 0:
        return node.module or ""
    package = list(PurePosixPath(path).parts[:-1])
    if node.level > len(package):
        found = "this relative import leads out of the bundle; import the module by its name"
        raise Refused("E_BUNDLE_INVALID", found, module.place(node))
    kept = package[: len(package) - node.level + 1]
    return ".".join([*kept, *(node.module.split(".") if node.module else [])])


def _resolve(dotted: str, read: ReadText) -> list[tuple[str, str]]:
    """The local files that importing `dotted` runs: each package's `__init__` and the module itself."""
    found: list[tuple[str, str]] = []
    parts = dotted.split(".")
    for count in range(1, len(parts) + 1):
        base = "/".join(parts[:count])
        for path in (f"{base}/__init__.py", f"{base}.py"):
            text = read(path)
            if text is not None:
                found.append((path, text))
                break
    return found


def _check_size(count: int, size: int, place: Place) -> None:
    if count > MAX_FILES:
        raise Refused("E_BUNDLE_INVALID", f"the bundle has more than {MAX_FILES} files", place)
    if size > MAX_BYTES:
        raise Refused("E_BUNDLE_INVALID", f"the bundle is larger than {MAX_BYTES} bytes", place)
