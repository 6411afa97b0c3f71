"""Expressions in definitions: compiled once, evaluated often, bounded whatever their text and data are.

A plain path (`input.a.b`, `steps['x'].y`) is looked up exactly, without CEL, so values of any size keep
every digit. Everything else is CEL over the parts of the scope that it names, and only those.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from schemas.errors import Refused
from topology import cel
from topology.lexing import PathParts, Token, read_paths, scan, whole_path
from topology.names import hint
from topology.repeated_work import RepeatedWork, is_macro, repeated_work

MAX_TEXT = 4096
SHOWN = 80  # characters of an expression that a message shows

FILTER_VARIABLES = ("data", "event")
LANE_VARIABLES = ("data", "event", "input", "run")
STEP_VARIABLES = ("event", "input", "run", "step", "steps")
LETTER_TEXTS = ("created_at", "dead_letter_id", "error_code", "reason", "run_id", "trigger_id", "workflow_id")
LETTER_VARIABLES = (*LETTER_TEXTS, "redrive_count", "data", "event")
LETTER_TYPES = (*((name, "STRING") for name in LETTER_TEXTS), ("redrive_count", "INT"))
ALL_VARIABLES = ("data", "event", "input", "run", "step", "steps")

_GROWTH = 256  # how many times over an expression may repeat the 64 KB it reads, by `+`
_WORK = 1_000_000  # same, by putting one value into a list several times in nested `map`s
_SEARCHED = 4096  # bytes read where a regular expression comes from data, or may run once an item of a list

_UNDECLARED = re.compile(r"undeclared reference to '(\w+)")
_SLIPS = (  # what other languages write, by what the compiler says of it
    (re.compile(r"recognition error at: '="), "equality is written `==`"),
    (re.compile(r"recognition error at: '[&|]|input '(?:and|or)'", re.IGNORECASE), "and is written `&&`, or is `||`"),
    (re.compile(r"recognition error at: '[\"']"), "this text is not closed"),
    (re.compile(r"'<EOF>'"), "the expression ends too early"),
)
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression. `paths` are the parts of the scope that it reads, none inside another."""

    text: str
    paths: tuple[PathParts, ...]
    lookup: PathParts | None
    program: cel.Program = field(repr=False)
    wanted: cel.Wanted = field(repr=False)
    limit: int = cel.MAX_BOUND
    work: RepeatedWork | None = None

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """Its value as plain JSON. Raises Refused E_EXPRESSION."""
        try:
            return self.value(scope)
        except cel.EvaluationError as error:
            raise Refused("E_EXPRESSION", f"`{_shown(self.text)}`: {error.message}") from error

    def value(self, scope: Mapping[str, Any]) -> Any:
        """As `evaluate`, but raises cel.EvaluationError."""
        if self.lookup is not None:
            return _look_up(self.lookup, scope)
        bound = cel.bind(scope, self.wanted, self.limit)
        excess = None if self.work is None else self.work.excess(bound)
        if excess is not None:
            raise cel.EvaluationError(excess)
        return cel.evaluate(self.program, bound)


@dataclass(frozen=True, slots=True)
class Filter:
    """A trigger's filter over `event` and `data`, or an order's over dead letters."""

    expression: Expression

    def matches(self, event: Mapping[str, Any]) -> bool:
        """Whether the envelope passes, as `passes`."""
        return self.passes({"event": event, "data": _data_of(event)})

    def passes(self, scope: Mapping[str, Any]) -> bool:
        """A field that is absent is a miss; what cannot be compared is Refused E_FILTER_ERROR, so that it is never
        dropped in silence.
        """
        try:
            result = self.expression.value(scope)
        except cel.EvaluationError as error:
            if error.is_absent:
                return False
            raise self._refused(error.message) from error
        if not isinstance(result, bool):
            raise self._refused(f"it gave {_kind(result)}, not true or false")
        return result

    def _refused(self, reason: str) -> Refused:
        return Refused("E_FILTER_ERROR", f"the filter `{_shown(self.expression.text)}` failed: {reason}")


@dataclass(frozen=True, slots=True)
class Condition:
    """A step's `if`. Unlike a filter it never takes an absent field for false."""

    expression: Expression

    def holds(self, scope: Mapping[str, Any]) -> bool:
        """Raises Refused E_EXPRESSION."""
        result = self.expression.evaluate(scope)
        if not isinstance(result, bool):
            text = _shown(self.expression.text)
            raise Refused("E_EXPRESSION", f"`{text}` gave {_kind(result)}, not true or false")
        return result


@lru_cache(maxsize=4096)
def compile_expression(
    text: str, variables: tuple[str, ...] = ALL_VARIABLES, types: tuple[tuple[str, str], ...] = ()
) -> Expression:
    """`types` are of variables that cannot hold anything. Raises Refused E_EXPRESSION; its details hold `offset`, the
    character of `text` at fault.
    """
    if len(text) > MAX_TEXT:
        raise _bad(f"an expression of {len(text)} characters; at most {MAX_TEXT} are compiled", 0)
    if not text.strip():
        raise _bad("an expression is missing here", 0)
    unusable = next((i for i, c in enumerate(text) if c == "\0" or "\ud800" <= c <= "\udfff"), None)
    if unusable is not None:
        raise _bad(f"U+{ord(text[unusable]):04X} cannot stand in an expression", unusable)
    tokens = list(scan(text))
    limit = _check_work(tokens)
    try:
        program = cel.compile_program(text, variables, types)
    except cel.CompileError as error:
        raise _bad(error.message + _advice(text, error.message, variables), _offset(text, error)) from error
    paths, work = _outermost(read_paths(tokens, variables)), repeated_work(tokens, variables)
    return Expression(text, paths, whole_path(tokens, variables), program, _wanted(paths), limit, work)


def compile_filter(text: str) -> Filter:
    """Raises Refused E_EXPRESSION, as `compile_expression`."""
    return Filter(_boolean(compile_expression(_unwrapped(text), FILTER_VARIABLES)))


def compile_letter_filter(text: str) -> Filter:
    """Over dead letters. Raises Refused E_EXPRESSION, as `compile_expression`."""
    return Filter(_boolean(compile_expression(_unwrapped(text), LETTER_VARIABLES, LETTER_TYPES)))


def compile_condition(text: str, variables: tuple[str, ...] = STEP_VARIABLES) -> Condition:
    """Raises Refused E_EXPRESSION, as `compile_expression`."""
    return Condition(_boolean(compile_expression(_unwrapped(text), variables)))


def _data_of(event: Mapping[str, Any]) -> Any:
    data = event.get("data")
    return {} if data is None else data


def _boolean(expression: Expression) -> Expression:
    if expression.program.returns not in ("BOOL", "DYN"):
        raise _bad(f"this gives {expression.program.returns.lower()}, not true or false", 0)
    return expression


def _unwrapped(text: str) -> str:
    """`{{ a }}` and `a` mean the same where an expression is expected. Offsets are kept by spaces."""
    bare = text.strip()
    if bare.startswith("{{") and bare.endswith("}}"):
        return text.replace("{{", "  ", 1)[: text.rindex("}}")]
    return text


def _check_work(tokens: list[Token]) -> int:
    """How many bytes it may read. Refused is what could repeat its data beyond reason: evaluation cannot be
    stopped from outside.
    """
    calls = [at for at in range(len(tokens)) if is_macro(tokens, at)]
    maps = sum(1 for at in calls if tokens[at].text == "map")
    pluses = sum(1 for token in tokens if token.text == "+")
    if (pluses / max(maps, 1) + 1) ** max(maps, 1) > _GROWTH or (maps and (len(tokens) / maps) ** maps > _WORK):
        raise _bad("this expression can ask for too much work; split it up, or do it in code", tokens[0].start)
    searches = [at for at, token in enumerate(tokens) if token.text == "matches"]
    is_bounded = not calls and all(_has_literal_pattern(tokens, at) for at in searches)
    return cel.MAX_BOUND if is_bounded or not searches else _SEARCHED


def _has_literal_pattern(tokens: list[Token], at: int) -> bool:
    return len(tokens) > at + 3 and tokens[at + 2].kind == "string" and tokens[at + 3].text == ")"


def _outermost(paths: list[PathParts]) -> tuple[PathParts, ...]:
    kept: list[PathParts] = []
    for path in sorted(set(paths), key=len):
        if not any(path[: len(other)] == other for other in kept):
            kept.append(path)
    return tuple(kept)


def _wanted(paths: Collection[PathParts]) -> cel.Wanted:
    """The paths as a tree."""
    tree: dict[str, Any] = {}
    for path in paths:
        inner = tree
        for part in path[:-1]:
            inner = inner.setdefault(str(part), {})
        inner[str(path[-1])] = None
    return tree


def _look_up(path: PathParts, scope: Mapping[str, Any]) -> Any:
    value: Any = scope
    for at, part in enumerate(path):
        if isinstance(value, Mapping) and isinstance(part, str):
            value = value.get(part, _MISSING)
        elif isinstance(value, list | tuple) and isinstance(part, int):
            value = value[part] if part < len(value) else _MISSING
        else:
            raise cel.EvaluationError(f"`{_path_text(path[:at])}` is {_kind(value)}, which has no `{part}`")
        if value is _MISSING:
            inside = f" in `{_path_text(path[:at])}`" if at else ""
            raise cel.EvaluationError(f"there is no `{part}`{inside}", is_absent=True)
    return value


def _path_text(path: PathParts) -> str:
    return ".".join(str(part) for part in path)


def _kind(value: object) -> str:
    kinds: list[tuple[type | tuple[type, ...], str]] = [
        (bool, "true or false"),
        ((int, float), "a number"),
        (str, "text"),
        ((list, tuple), "a list"),
        (Mapping, "an object"),
    ]
    return next((name for kind, name in kinds if isinstance(value, kind)), "null")


def _offset(text: str, error: cel.CompileError) -> int:
    lines = text.split("\n")
    line = min(error.line, len(lines)) - 1
    start = sum(len(row) + 1 for row in lines[:line])
    offset = start + min(error.column - 1, len(lines[line]))
    unknown = _UNDECLARED.search(error.message)
    if unknown is None:
        return offset
    # Of `foo.bar` the compiler names the dot; the fault begins before it.
    return max(text.rfind(unknown[1], 0, offset + len(unknown[1])), 0)


def _advice(text: str, message: str, variables: Collection[str]) -> str:
    if "undeclared reference" in message and "steps." in text and "-" in text:
        return "; a step id with dashes is written steps['reserve-funds']"
    unknown = _UNDECLARED.search(message)
    if unknown is None:
        return next((f"; {advice}" for slip, advice in _SLIPS if slip.search(message)), "")
    if unknown[1] == "data":
        return "; `data` exists in filters and partition keys, elsewhere it is `input`"
    if unknown[1] == "input":
        return "; here the event's data is `data`"
    return hint(unknown[1], variables)


def _bad(message: str, offset: int) -> Refused:
    return Refused("E_EXPRESSION", message, details={"offset": offset})


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
