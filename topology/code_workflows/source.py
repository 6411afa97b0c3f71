"""A Python file as a syntax tree with exact places, and the local names of what it imports.

Parsing is bounded: what the parser itself gives up on becomes a refusal with a place.
"""

import ast
import warnings
from dataclasses import dataclass, field

from schemas.errors import Place, Refused
from topology.yaml_source import Document, Path, Spot

MAX_SOURCE = 1024 * 1024
SDK = "anthares44.automation"


@dataclass(frozen=True)
class PythonFile:
    """`names` maps a local name to the dotted thing it stands for: `step` to `anthares44.automation.step`."""

    file: str
    source: str
    tree: ast.Module = field(repr=False)
    names: dict[str, str] = field(repr=False)
    lines: list[str] = field(repr=False)

    def place(self, node: ast.AST) -> Place:
        line, column = self._position(node)
        return Place(self.file, line + 1, column + 1)

    def meaning(self, node: ast.expr) -> str:
        """The dotted name that an expression stands for, or an empty text."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        first = self.names.get(node.id, node.id)
        return ".".join([first, *reversed(parts)])

    def document(self, node: ast.expr) -> Document:
        """A literal as a document with places, so that it is validated like YAML. Raises SyntaxError, or
        ValueError, where it is not written out.
        """
        values: dict[Path, Spot] = {}
        keys: dict[Path, Spot] = {}
        value = self._literal(node, (), values, keys)
        return Document(self.file, self.source, value, values, keys)

    def _literal(self, node: ast.expr, path: Path, values: dict[Path, Spot], keys: dict[Path, Spot]) -> object:
        values[path] = self.spot(node)
        if isinstance(node, ast.Dict):
            found: dict[str, object] = {}
            for key, item in zip(node.keys, node.values, strict=True):
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                    raise SyntaxError("keys must be written out as text")  # noqa: TRY004 - of the source, as literal_eval
                if key.value in found:
                    raise SyntaxError(f"the key `{key.value}` stands twice")
                keys[(*path, key.value)] = self.spot(key)
                found[key.value] = self._literal(item, (*path, key.value), values, keys)
            return found
        if isinstance(node, ast.List | ast.Tuple):
            return [self._literal(item, (*path, at), values, keys) for at, item in enumerate(node.elts)]
        return ast.literal_eval(node)

    def spot(self, node: ast.AST) -> Spot:
        """Where a node stands, as documents keep it."""
        line, column = self._position(node)
        index = sum(len(text) + 1 for text in self.lines[:line]) + column
        quoted = isinstance(node, ast.Constant) and isinstance(node.value, str)
        return Spot(index, line, column, '"' if quoted else "")

    def _position(self, node: ast.AST) -> tuple[int, int]:
        """Line and column from 0; the tree counts columns in bytes of UTF-8."""
        line = getattr(node, "lineno", 1) - 1
        text = self.lines[line] if line < len(self.lines) else ""
        return line, len(text.encode()[: getattr(node, "col_offset", 0)].decode(errors="ignore"))


def read_python(file: str, source: str) -> PythonFile:
    """Parse a file. Raises Refused E_BUNDLE_INVALID with the place."""
    source = source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if len(source) > MAX_SOURCE:
        found = f"the file has {len(source)} characters; at most {MAX_SOURCE} are read"
        raise Refused("E_BUNDLE_INVALID", found, Place(file, 1, 1))
    try:
        source.encode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the author's code, such as "\\d": his own tools tell him
            tree = ast.parse(source, filename=file)
    except SyntaxError as error:
        place = Place(file, error.lineno or 1, max(1, error.offset or 1))
        raise Refused("E_BUNDLE_INVALID", f"this is not Python: {error.msg}", place) from error
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or "nested too deeply"
        raise Refused("E_BUNDLE_INVALID", f"this cannot be read as Python: {reason}", Place(file, 1, 1)) from error
    return PythonFile(file, source, tree, _imported_names(tree), source.split("\n"))


def _imported_names(tree: ast.Module) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                names[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names
