"""Reads one YAML 1.2 core document strictly and remembers where each key and value stands.

Refused: a key that stands twice, anchors, aliases, tags, directives, a second document, keys that are
not text, and anything past the bounds of size and depth. Nothing is guessed and nothing is merged.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from schemas.errors import Place, Refused
from topology.yaml_scalars import resolve_plain

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32

Path = tuple[str | int, ...]

# Line ends that libyaml honours and most editors do not show: a reviewer would see one line, the reader two.
_HIDDEN_LINE_ENDS = re.compile("[\x85\u2028\u2029]")
_DIRECTIVE = re.compile(r"\A(?:[ \t]*(?:#[^\n]*)?\r?\n)*%")


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a value stands: `index` counts characters of the source, line and column count from 0."""

    index: int
    line: int
    column: int
    style: str = ""


@dataclass(frozen=True)
class Document:
    """A document's plain value, and the places of its parts by path."""

    file: str
    source: str
    value: Any
    _values: dict[Path, Spot] = field(repr=False)
    _keys: dict[Path, Spot] = field(repr=False)

    def has(self, path: Path) -> bool:
        return path in self._values

    def place(self, path: Path) -> Place:
        """The place of the value at `path`, or of its nearest ancestor that exists."""
        while path not in self._values:
            path = path[:-1]
        return self._place(self._values[path])

    def key_place(self, path: Path) -> Place:
        """The place of the key that ends `path` (of the value, for items of lists)."""
        spot = self._keys.get(path)
        return self._place(spot) if spot else self.place(path)

    def text_place(self, path: Path, offset: int) -> Place:
        """The place of character `offset` of the text at `path`, as exactly as its style allows."""
        spot = self._values.get(path)
        text = self.at(path) if spot else None
        if spot is None or not isinstance(text, str):
            return self.place(path)
        if spot.style == "|":
            return self._literal_place(spot, text, offset)
        start = spot.index + (1 if spot.style in ("'", '"') else 0)
        before = text[:offset]
        if "\n" in before or not self.source.startswith(before, start):
            return self._place(spot)
        return Place(self.file, spot.line + 1, spot.column + (start - spot.index) + offset + 1)

    def _literal_place(self, spot: Spot, text: str, offset: int) -> Place:
        lines = self.source.split("\n")
        before = text[:offset]
        row = spot.line + 1 + before.count("\n")
        wanted = text.split("\n")[before.count("\n")]
        if row < len(lines) and wanted and lines[row].rstrip("\r").endswith(wanted):
            indent = len(lines[row].rstrip("\r")) - len(wanted)
            return Place(self.file, row + 1, indent + offset - (before.rfind("\n") + 1) + 1)
        return self._place(spot)

    def renamed(self, names: Mapping[str, str]) -> "Document":
        """The same document with some keys under other names, at the places of the old ones."""

        def rename(value: Any) -> Any:
            if isinstance(value, dict):
                return {names.get(key, key): rename(item) for key, item in value.items()}
            return [rename(item) for item in value] if isinstance(value, list) else value

        def move(spots: Mapping[Path, Spot]) -> dict[Path, Spot]:
            return {tuple(names.get(str(part), part) for part in path): spot for path, spot in spots.items()}

        return Document(self.file, self.source, rename(self.value), move(self._values), move(self._keys))

    def at(self, path: Path) -> Any:
        """The value at `path`, which exists."""
        value = self.value
        for part in path:
            value = value[part]
        return value

    def _place(self, spot: Spot) -> Place:
        return Place(self.file, spot.line + 1, spot.column + 1)


def read_yaml(file: str, source: str) -> Document:
    """Read `source`, named `file` in messages. Raises Refused with E_YAML or E_DUPLICATE_KEY."""
    source = source.removeprefix("\ufeff")
    _check_text(file, source)
    reader = _Reader(file)
    try:
        reader.read(yaml.parse(source, Loader=yaml.CSafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file, 1, 1)
        raise Refused("E_YAML", f"this is not YAML: {error.problem or error.context}", place) from error
    except yaml.YAMLError as error:
        raise Refused("E_YAML", f"this is not YAML: {error}", Place(file, 1, 1)) from error
    return Document(file, source, reader.value, reader.values, reader.keys)


def _check_text(file: str, source: str) -> None:
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise Refused("E_YAML", f"the file has {size} bytes; at most {MAX_BYTES} are read", Place(file, 1, 1))
    for index, character in enumerate(source):
        if "\ud800" <= character <= "\udfff" or (character < " " and character not in "\t\r\n"):
            shown = f"the character U+{ord(character):04X} cannot stand in a YAML file"
            raise Refused("E_YAML", shown, _place_of(file, source, index))
    hidden = _HIDDEN_LINE_ENDS.search(source)
    if hidden:
        shown = f"U+{ord(hidden[0]):04X} ends a line for YAML but not for the eye; write a plain line end"
        raise Refused("E_YAML", shown, _place_of(file, source, hidden.start()))
    directive = _DIRECTIVE.search(source)
    if directive:
        place = _place_of(file, source, directive.end() - 1)
        raise Refused("E_YAML", "directives (`%...`) are not read; remove this line", place)


def _place_of(file: str, source: str, index: int) -> Place:
    before = source[:index]
    return Place(file, before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)


class _Reader:
    """Builds the value from parser events. One frame a level, so depth is bounded by us, not by the stack."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.value: Any = None
        self.values: dict[Path, Spot] = {(): Spot(0, 0, 0)}
        self.keys: dict[Path, Spot] = {}
        self._frames: list[_Frame] = []
        self._documents = 0

    def read(self, events: Iterator[yaml.Event]) -> None:
        for event in events:
            match event:
                case yaml.DocumentStartEvent():
                    self._open_document(event)
                case yaml.AliasEvent():
                    raise self._refused("aliases (`*name`) are not read; write the value out", event)
                case yaml.ScalarEvent():
                    self._check_plain_node(event)
                    self._scalar(event)
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self._check_plain_node(event)
                    self._open(event)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._frames.pop()

    def _open_document(self, event: yaml.DocumentStartEvent) -> None:
        self._documents += 1
        if self._documents > 1:
            raise self._refused("a second document begins here; one file holds one document", event)

    def _check_plain_node(self, event: Any) -> None:
        if event.anchor is not None:
            raise self._refused(f"anchors (`&{event.anchor}`) are not read; remove it", event)
        if event.tag is not None:
            raise self._refused(f"tags (`{event.tag}`) are not read; remove it", event)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if event.implicit[0]:
            try:
                value = resolve_plain(event.value)
            except ValueError as error:
                raise self._refused(str(error), event) from error
        else:
            value = event.value
        self._add(value, event)

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        frame = self._frames[-1] if self._frames else None
        if frame is not None and frame.wants_key:
            hint = "a key must be text; a value that begins with {{ needs quotes around it"
            raise self._refused(hint, event)
        if len(self._frames) >= MAX_DEPTH:
            raise self._refused(f"nested deeper than {MAX_DEPTH} levels", event)
        container: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        path = self._add(container, event)
        self._frames.append(_Frame(container, path))

    def _add(self, value: Any, event: Any) -> Path:
        """Put a value (or a key) where it belongs; returns the value's path."""
        if not self._frames:
            self.value = value
            self.values[()] = _spot(event)
            return ()
        frame = self._frames[-1]
        if frame.wants_key:
            self._key(frame, value, event)
            return frame.path
        if isinstance(frame.container, list):
            path: Path = (*frame.path, len(frame.container))
            frame.container.append(value)
        else:
            path = (*frame.path, frame.key)
            frame.container[frame.key] = value
            frame.wants_key = True
        self.values[path] = _spot(event)
        return path

    def _key(self, frame: "_Frame", key: Any, event: Any) -> None:
        if not isinstance(key, str):
            raise self._refused(f"the key `{event.value}` is not text; put it in quotes", event)
        path = (*frame.path, key)
        first = self.keys.get(path)
        if first is not None:
            line = first.line + 1
            raise Refused(
                "E_DUPLICATE_KEY",
                f"`{key}` stands here a second time (first in line {line}); keep one of the two",
                self._place(event),
            )
        self.keys[path] = _spot(event)
        frame.key = key
        frame.wants_key = False

    def _refused(self, message: str, event: Any) -> Refused:
        return Refused("E_YAML", message, self._place(event))

    def _place(self, event: Any) -> Place:
        return Place(self.file, event.start_mark.line + 1, event.start_mark.column + 1)


class _Frame:
    """An open mapping or list. In a mapping, `wants_key` says whether a key or its value comes next."""

    __slots__ = ("container", "key", "path", "wants_key")

    def __init__(self, container: dict[str, Any] | list[Any], path: Path) -> None:
        self.container = container
        self.path = path
        self.key = ""
        self.wants_key = isinstance(container, dict)


def _spot(event: Any) -> Spot:
    mark = event.start_mark
    style = getattr(event, "style", None) or ""
    return Spot(mark.index, mark.line, mark.column, style)
