"""What an expression would come to that does something for each item of a list: told before it is evaluated, because
evaluation can be stopped by nobody and everybody else in the process waits for it.

A body that looks at its item alone is no danger: all items together are what was read. One that reads something else
does that as often as there are items, and loops inside each other may look at anything. It errs towards more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from topology.lexing import PathParts, Token, read_paths

MACROS: Final = frozenset({"map", "filter", "all", "exists", "exists_one"})
MOST_TURNS: Final = 10_000  # the library's own: what loops longer is an error
MOST_BYTES: Final = 128 * 1024 * 1024
MOST_STEPS: Final = 20_000_000  # of about 70 ns

_ITEM_BYTES = 40
_LITERALS = ("string", "number")
_TEXT_A_STEP = 256  # characters that are compared or counted meanwhile
_SEARCHED_A_STEP = 4096  # the same where one text is looked for in another, at each of its places
_OVER_TEXT = frozenset({"=", "<", ">", "size", "string", "bytes", "startsWith", "endsWith", "contains", "matches"})


class _Size(NamedTuple):
    """The longest text and the longest list in data, and how many values there are."""

    text: int
    items: int
    values: int


@dataclass(frozen=True, slots=True)
class RepeatedWork:
    """`loops` are macros; `paths` is what their bodies read besides their item; `joins` and `list_joins` say how much
    longer a text or a list can become in one turn. `looks` go through texts, `compares` through all that is in a value.
    """

    loops: int
    paths: tuple[PathParts, ...]
    literal_text: int
    literal_items: int
    joins: float
    list_joins: float
    looks: int
    compares: int
    searches: int

    def excess(self, scope: Mapping[str, Any]) -> str | None:
        """Why it is too much over this data; None where it is not."""
        whole, again = _size(scope), _size([_at(path, scope) for path in self.paths])
        turns = min(MOST_TURNS, max(whole.items, self.literal_items) ** self.loops)
        text = max(again.text, self.literal_text)
        items = max(again.items, self.literal_items)
        size = turns * max(self.joins * text, self.list_joins * items * _ITEM_BYTES)
        over_text = self.looks * text / _TEXT_A_STEP + self.searches * text**2 / _SEARCHED_A_STEP
        steps = turns * (self.compares * again.values + over_text)
        if size <= MOST_BYTES and steps <= MOST_STEPS:
            return None
        return (
            f"it would be too much work: up to {turns} times it looks at or joins texts of up to {text} characters and "
            f"lists of up to {items} items; let it read less inside its loops, or do it in code"
        )


def repeated_work(tokens: Sequence[Token], roots: Sequence[str]) -> RepeatedWork | None:
    """None where nothing is done over and over with more than an item."""
    loops = [at for at in range(len(tokens)) if is_macro(tokens, at)]
    inside = _inside(tokens, loops)
    bodies = [tokens[at] for at in inside]
    again = read_paths(bodies, roots)
    # A list that is written out may hold one large value many times.
    over_anything = len(loops) > 1 or any(tokens[at - 2].kind != "name" for at in loops)
    if not (again or over_anything):
        return None
    joins = [at for at in inside if tokens[at].text == "+"]
    list_joins = [at for at in joins if not _joins_literal(tokens, at)]
    copies = sum(1 for token in bodies if token.text == "bytes")
    maps = max(1, sum(1 for at in loops if tokens[at].text == "map"))
    return RepeatedWork(
        loops=len(loops),
        paths=tuple(set(read_paths(list(tokens), roots) if over_anything else again)),
        literal_text=max((len(token.text) for token in bodies if token.kind == "string"), default=0),
        literal_items=sum(1 for token in tokens if token.text == ",") + 1,
        joins=_growth(len(joins), maps) + copies,
        list_joins=_growth(len(list_joins), maps),
        looks=sum(1 for token in bodies if token.text in _OVER_TEXT),
        compares=sum(1 for at in inside if tokens[at].text == "in" or _compares_values(tokens, at)),
        searches=sum(1 for token in bodies if token.text == "contains"),
    )


def is_macro(tokens: Sequence[Token], at: int) -> bool:
    is_method = 0 < at < len(tokens) - 1 and tokens[at - 1].text == "." and tokens[at + 1].text == "("
    return is_method and tokens[at].text in MACROS


def _inside(tokens: Sequence[Token], loops: Sequence[int]) -> list[int]:
    """The places of tokens between the brackets of these calls."""
    found: set[int] = set()
    for at in loops:
        found.update(_until_closed(tokens, at + 1))
    return sorted(found)


def _until_closed(tokens: Sequence[Token], opening: int) -> Iterator[int]:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].text == "(") - (tokens[at].text == ")")
        if depth == 0:
            return
        yield at


def _compares_values(tokens: Sequence[Token], at: int) -> bool:
    """Whether `==` or `!=` ends here, with nothing at its side that is compared at once."""
    if tokens[at].text != "=" or tokens[at - 1].text not in ("=", "!"):
        return False
    return not any(token.kind in _LITERALS or token.text == "-" for token in (tokens[at - 2], *tokens[at + 1 : at + 2]))


def _joins_literal(tokens: Sequence[Token], at: int) -> bool:
    """Whether a text or a number stands beside this plus, which then joins no lists."""
    return any(token.kind in _LITERALS for token in tokens[max(at - 1, 0) : at + 2])


def _growth(joins: int, maps: int) -> float:
    """All that comes about on the way is kept until the end."""
    return float(joins * (joins / maps + 1) ** maps)


def _at(path: PathParts, scope: Mapping[str, Any]) -> Any:
    value: Any = scope
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _size(value: Any) -> _Size:
    text = items = values = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        values += 1
        if isinstance(one, str):
            text = max(text, len(one) if one.isascii() else len(one.encode(errors="replace")))
        elif isinstance(one, Mapping | list | tuple):
            items = max(items, len(one))
            waiting += one.values() if isinstance(one, Mapping) else one
    return _Size(text, items, values)
