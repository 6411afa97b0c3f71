"""Whether a schema takes whatever another took: what a type's next version has to do.

Decided from the two schemas alone, so it errs on the side of no: a change that is not seen to take as much is told with
its place. One thing is let pass that JSON Schema, read strictly, would not: a field may be described that the version
before did not name. What senders put there was nobody's word.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from schemas.event_schemas.dialect import NOTES, Part, Path, Schema, parts_of
from schemas.event_schemas.telling import TYPES, kind_of

_MOST_STEPS: Final = 20_000
_DEEPEST: Final = 64
_PASSED_OVER: Final = NOTES | {"$ref", "$defs", "allOf"}
_AT_LEAST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_AT_MOST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


class TooLargeError(Exception):
    """The two cannot be compared in good time."""


def narrowed(old: Schema, new: Schema) -> Path | None:
    """The place in `new` that takes less than `old` did; None where it takes as much."""
    comparison = _Comparison(parts_of(old), parts_of(new))
    try:
        return comparison.place((), ())
    except TooLargeError:
        return ()


class _Old(NamedTuple):
    """One of the parts that were asked at once."""

    path: Path
    schema: Mapping[str, Any]

    def of(self, name: str) -> Path | None:
        """The part that described a field."""
        if name in self.schema.get("properties", ()):
            return (*self.path, "properties", name)
        is_known = "additionalProperties" in self.schema and "patternProperties" not in self.schema
        return (*self.path, "additionalProperties") if is_known else None


class _Comparison:
    """Of parts by their paths. A pair that is being compared further up is taken for fine: it is about deeper data."""

    def __init__(self, old: Mapping[Path, Part], new: Mapping[Path, Part]) -> None:
        self.old, self.new = old, new
        self._known: dict[tuple[Path, Path], Path | None] = {}
        self._depth = 0

    def place(self, before: Path, after: Path) -> Path | None:
        """Where the part `after` takes less than the part `before` did."""
        pair = (before, after)
        if pair not in self._known:
            if len(self._known) >= _MOST_STEPS or self._depth >= _DEEPEST:
                raise TooLargeError
            self._known[pair] = None
            self._depth += 1
            self._known[pair] = self._compared(before, after)
            self._depth -= 1
        return self._known[pair]

    def _compared(self, before: Path, after: Path) -> Path | None:
        held = [(path, self.old[path].schema) for path in _at_once(self.old, before)]
        if any(schema is False for _, schema in held):
            return None
        olds = [_Old(path, schema) for path, schema in held if not isinstance(schema, bool)]
        for path in _at_once(self.new, after):
            schema = self.new[path].schema
            if isinstance(schema, bool):
                found = None if schema else path
            else:
                found = self._narrower(before, olds, path, schema)
            if found is not None:
                return found
        return None

    def _narrower(self, before: Path, olds: Sequence[_Old], path: Path, new: Mapping[str, Any]) -> Path | None:
        for keyword in new:
            found: Path | None = None
            if keyword == "properties":
                found = self._properties(olds, path, new)
            elif keyword == "required":
                found = _required(olds, path, new)
            elif keyword not in _PASSED_OVER and not self._keeps(before, olds, path, keyword, new):
                found = (*path, keyword)
            if found is not None:
                return found
        return None

    def _keeps(self, before: Path, olds: Sequence[_Old], path: Path, keyword: str, new: Mapping[str, Any]) -> bool:
        """Whether what the keyword asks now was asked before."""
        if keyword == "anyOf" and self._is_one_of(before, path, len(new[keyword])):
            return True
        for old in olds:
            if keyword == "anyOf":
                kept = self._alternatives(old, path, len(new[keyword]))
            elif keyword in ("items", "prefixItems"):
                kept = self._items(old, path, new)
            elif keyword == "additionalProperties":
                kept = self._others(old, path, new)
            else:
                kept = _is_kept(keyword, old.schema, new[keyword]) or self._is_same(old, keyword, new)
            if kept:
                return True
        return False

    def _is_one_of(self, before: Path, path: Path, many: int) -> bool:
        return any(self.place(before, (*path, "anyOf", at)) is None for at in range(many))

    def _alternatives(self, old: _Old, path: Path, many: int) -> bool:
        """Whether each of the alternatives before is one of those now."""
        return any(
            all(self._is_one_of((*old.path, keyword, at), path, many) for at in range(len(old.schema[keyword])))
            for keyword in ("anyOf", "oneOf")
            if keyword in old.schema
        )

    def _properties(self, olds: Sequence[_Old], path: Path, new: Mapping[str, Any]) -> Path | None:
        for name in new["properties"]:
            described = [found for old in olds if (found := old.of(name)) is not None]
            if not described:
                continue
            places = [self.place(one, (*path, "properties", name)) for one in described]
            if None not in places:
                return places[0]
        return None

    def _others(self, old: _Old, path: Path, new: Mapping[str, Any]) -> bool:
        """Whether names that are not described now were described at least as narrowly."""
        if old.schema.get("patternProperties") != new.get("patternProperties"):
            return False
        named = set(old.schema.get("properties", ())) - set(new.get("properties", ()))
        before = [(*old.path, "properties", name) for name in named]
        if "additionalProperties" not in old.schema:
            return new["additionalProperties"] in (True, {})
        after = (*path, "additionalProperties")
        return all(self.place(one, after) is None for one in (*before, (*old.path, "additionalProperties")))

    def _items(self, old: _Old, path: Path, new: Mapping[str, Any]) -> bool:
        first, before = len(new.get("prefixItems", ())), len(old.schema.get("prefixItems", ()))
        if first != before:
            return False
        pairs = [((*old.path, "prefixItems", at), (*path, "prefixItems", at)) for at in range(first)]
        if "items" in new:
            if "items" not in old.schema:
                return new["items"] in (True, {})
            pairs.append(((*old.path, "items"), (*path, "items")))
        return all(self.place(*pair) is None for pair in pairs)

    def _is_same(self, old: _Old, keyword: str, new: Mapping[str, Any]) -> bool:
        """Word for word, with everything it may refer to."""
        if keyword not in old.schema or not _equal(old.schema[keyword], new[keyword]):
            return False
        if keyword in ("if", "then", "else"):
            return all(_equal(old.schema.get(word), new.get(word)) for word in ("if", "then", "else"))
        if '"$ref"' not in json.dumps(new[keyword]):
            return True
        return _equal(self.old[()].schema, self.new[()].schema)


def _at_once(parts: Mapping[Path, Part], path: Path) -> Iterator[Path]:
    """The part and those that it stands for without a condition."""
    yield path
    part = parts[path]
    if isinstance(part.schema, bool):
        return
    for at in range(len(part.schema.get("allOf", ()))):
        yield from _at_once(parts, (*path, "allOf", at))
    if "$ref" in part.schema:
        yield from _at_once(parts, part.in_place[-1])


def _required(olds: Sequence[_Old], path: Path, new: Mapping[str, Any]) -> Path | None:
    known = {name for old in olds for name in old.schema.get("required", ())}
    return None if known.issuperset(new["required"]) else (*path, "required")


def _is_kept(keyword: str, old: Mapping[str, Any], asked: Any) -> bool:
    """Whether the old schema asked as much by what it lists and counts."""
    if keyword == "type":
        return _types_of(old) <= _widened(asked)
    if keyword in ("enum", "const"):
        listed = _listed(old)
        allowed = [_text(value) for value in (asked if keyword == "enum" else [asked])]
        return listed is not None and all(_text(value) in allowed for value in listed)
    if keyword in _AT_LEAST:
        return keyword in old and bool(old[keyword] >= asked)
    if keyword in _AT_MOST:
        return keyword in old and bool(old[keyword] <= asked)
    return keyword == "uniqueItems" and asked is False


def _types_of(schema: Mapping[str, Any]) -> set[str]:
    listed = _listed(schema)
    if listed is not None:
        return {kind_of(value) for value in listed}
    told = schema.get("type", TYPES)
    return {told} if isinstance(told, str) else set(told)


def _widened(asked: Any) -> set[str]:
    types = {asked} if isinstance(asked, str) else set(asked)
    return types | {"integer"} if "number" in types else types


def _listed(schema: Mapping[str, Any]) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _equal(one: Any, other: Any) -> bool:
    return _text(one) == _text(other)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
