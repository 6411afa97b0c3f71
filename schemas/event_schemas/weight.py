"""How much a schema asks of one value at most, whatever data comes: a bound that holds before any is there.

A value is looked at by each part of the schema that may stand for its place. Parts that look at one value, and again at
each value inside it, multiply with every level: such a schema is refused, as is one that refers to itself without going
deeper. Where the sum is small, checking takes a time that grows with the data alone.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from schemas import strict_json
from schemas.event_schemas.dialect import Part, Path, SchemaFault

MOST: Final = 1000
_PATTERN: Final = 100  # what a pattern costs for a byte of text, against a plain part
_FORMAT: Final = 5
_DEPENDENT: Final = 3
_CONTAINER: Final = 4
_MOST_REFERRING: Final = 100
_INSIDE_NAMES = frozenset({"properties", "patternProperties", "additionalProperties", "unevaluatedProperties"})
_OTHERS = {"additionalProperties": "properties", "items": "prefixItems"}  # what is not named under the second
_ANY_NAME, _ANY_PLACE, _NAME = "any name", "any place", "a name itself"

Slot = tuple[str, str | int | None]


def weigh(parts: Mapping[Path, Part]) -> int:
    """The most that is asked of one value. Raises SchemaFault where that is more than `MOST`, or has no end."""
    reach = _Reach(parts)
    entries = {(): None} | {path: None for part in parts.values() for _, _, path in part.children}
    levels = {path: _Level(reach, path) for path in entries}
    asked = {path: level.own for path, level in levels.items()}
    for _ in range(strict_json.MAX_DEPTH):
        deeper = {path: level.deeper(asked) for path, level in levels.items()}
        for path, much in deeper.items():
            if much > MOST:
                raise SchemaFault(
                    "too much of the schema looks at one and the same value: parts that refer to themselves from "
                    "several places, nested alternatives, patterns or long lists of values; let one part describe "
                    "each value",
                    path,
                )
        if deeper == asked:
            break
        asked = deeper
    return asked[()]


class _Reach:
    """Which parts look at the same value as one, and how often each."""

    def __init__(self, parts: Mapping[Path, Part]) -> None:
        self.parts = parts
        self._known: dict[Path, Counter[Path]] = {}
        self._open: set[Path] = set()

    def of(self, path: Path) -> Counter[Path]:
        if path in self._known:
            return self._known[path]
        if path in self._open:
            raise SchemaFault("this part refers to itself and goes no deeper into the data: it would never end", path)
        if len(self._open) >= _MOST_REFERRING:
            raise SchemaFault(f"over {_MOST_REFERRING} parts refer from one to the next; refer to the last", path)
        self._open.add(path)
        found, part = Counter({path: 1}), self.parts[path]
        twice = 2 if _looks_twice(part) else 1
        for target in part.in_place:
            for inside, often in self.of(target).items():
                found[inside] += often * twice
        self._open.discard(path)
        if found.total() > MOST:
            raise SchemaFault(f"over {MOST} parts of the schema look at the same value here", path)
        self._known[path] = found
        return found


class _Level:
    """A part with all that looks at the same value, and where they look further."""

    def __init__(self, reach: _Reach, path: Path) -> None:
        looking = reach.of(path)
        self.own = sum(often * _cost(reach.parts[one]) for one, often in looking.items())
        self._named: dict[Slot, Counter[Path]] = {}
        self._every: dict[str, Counter[Path]] = {kind: Counter() for kind in (_ANY_NAME, _ANY_PLACE, _NAME)}
        self._others: list[tuple[str, frozenset[Slot], Path, int]] = []
        for one, often in looking.items():
            self._add(reach.parts[one], often)

    def _add(self, part: Part, often: int) -> None:
        named = {keyword: frozenset(_slots(part, keyword)) for keyword in _OTHERS.values()}
        for keyword, name, path in part.children:
            kind = _NAME if keyword == "propertyNames" else _ANY_NAME if keyword in _INSIDE_NAMES else _ANY_PLACE
            if keyword in _OTHERS:
                self._others.append((kind, named[_OTHERS[keyword]], path, often))
            elif keyword in named:
                self._named.setdefault((kind, name), Counter())[path] += often
            else:
                self._every[kind][path] += often

    def deeper(self, asked: Mapping[Path, int]) -> int:
        """The most that is asked of a value here or one level further down than `asked` knows of."""
        every = {kind: _sum(paths, asked) for kind, paths in self._every.items()}
        rest = [(kind, named, often * asked[path]) for kind, named, path, often in self._others]
        most = max(self.own, every[_NAME])
        for kind in (_ANY_NAME, _ANY_PLACE):
            most = max(most, every[kind] + sum(much for other, _, much in rest if other == kind))
        for slot, paths in self._named.items():
            others = sum(much for kind, named, much in rest if kind == slot[0] and slot not in named)
            most = max(most, _sum(paths, asked) + every[slot[0]] + others)
        return most


def _sum(paths: Mapping[Path, int], asked: Mapping[Path, int]) -> int:
    return sum(often * asked[path] for path, often in paths.items())


def _slots(part: Part, keyword: str) -> Iterator[Slot]:
    kind = _ANY_NAME if keyword in _INSIDE_NAMES else _ANY_PLACE
    return ((kind, name) for told, name, _ in part.children if told == keyword)


def _looks_twice(part: Part) -> bool:
    """Whether it has to find out which parts looked at what is inside, before it looks at the rest."""
    schema = part.schema
    return not isinstance(schema, bool) and ("unevaluatedProperties" in schema or "unevaluatedItems" in schema)


def _cost(part: Part) -> int:
    schema = part.schema
    if isinstance(schema, bool):
        return 1
    patterns = ("pattern" in schema) + len(schema.get("patternProperties", ()))
    dependent = len(schema.get("dependentRequired", ()))
    return 1 + _PATTERN * patterns + _FORMAT * ("format" in schema) + _DEPENDENT * dependent + _listed(schema)


def _listed(schema: Mapping[str, Any]) -> int:
    """Values of an enum: of one kind they are looked up, of several they are gone through one by one."""
    values = schema.get("enum")
    if not isinstance(values, list):
        return 0
    containers = sum(isinstance(value, dict | list) for value in values)
    kinds = {type(value) for value in values}
    return _CONTAINER * containers + (len(values) if len(kinds) > 1 else 0)
