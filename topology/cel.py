"""The one place that touches the CEL library: compile, bind data, evaluate, take the result back.

What the library gets wrong is handled here: lone errors that come as values, an integer over 64 bits
that spoils its neighbours, text cut at NUL, a crash on deep data, and a stolen reference at null.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import isfinite
from typing import Any

from cel_expr_python import cel

MAX_BOUND = 64 * 1024  # bytes of data that one evaluation may see: binding is slow and evaluation can't be stopped
MAX_RESULT = 1024 * 1024
MAX_DEPTH = 64  # the library recurses on the C stack: 50,000 levels end the process

# The parts of a scope that an expression reads: a name's own parts, or None for all of it.
Wanted = Mapping[str, "Wanted | None"]

_MISSING = object()
_BOOL = cel.Type.BOOL
_NODE_COST = 8
_INT_LOW, _INT_HIGH = -(2**63), 2**64
_BIG = b"\xff\xfe"  # no UTF-8 text begins so: string(...) of it is an error. No NUL: bytes are cut there too
_PACKED = re.compile(re.escape(_BIG) + b"([np])([0-9a-f]{9,})")
_MIRROR = str.maketrans("0123456789abcdef", "fedcba9876543210")
_COMPILE_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_ABSENT = re.compile(r"NOT_FOUND: Key not found in map|UNKNOWN: Index error: index=-?\d+ size=")
_STATUS = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")


class CompileError(Exception):
    """The text is not valid CEL. `line` and `column` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


class EvaluationError(Exception):
    """No value came out. `is_absent`: only because something that was asked for does not exist."""

    def __init__(self, message: str, *, is_absent: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.is_absent = is_absent


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression. `returns` is the checked type's name: BOOL, STRING, DYN, ..."""

    compiled: Any
    returns: str


@lru_cache(maxsize=32)
def _environment(variables: tuple[str, ...], types: tuple[tuple[str, str], ...]) -> Any:
    told = {name: getattr(cel.Type, kind) for name, kind in types}
    return cel.NewEnv(variables={name: told.get(name, cel.Type.DYN) for name in variables})


def compile_program(text: str, variables: Collection[str], types: tuple[tuple[str, str], ...] = ()) -> Program:
    """Compile and type-check; a variable may hold anything, but for those in `types`. Raises CompileError."""
    try:
        compiled = _environment(tuple(sorted(variables)), types).compile(text)
    except RuntimeError as error:
        raise _compile_error(str(error)) from error
    return Program(compiled, compiled.return_type().name())


def _compile_error(text: str) -> CompileError:
    found = _COMPILE_ERROR.search(text)
    if found is None:
        return CompileError(_STATUS.sub("", text.split("\n", 1)[0]), 1, 1)
    message = found[3].replace(" (in container '')", "")
    message = re.sub(r" expecting \{.*", "", message)
    return CompileError(_STATUS.sub("", message)[:300], max(1, int(found[1])), max(1, int(found[2])))


def evaluate(program: Program, bindings: Mapping[str, Any]) -> Any:
    """The result as a plain JSON value. `bindings` come from `bind`. Raises EvaluationError."""
    try:
        value = program.compiled.eval(data=bindings)
    except RuntimeError as error:
        raise EvaluationError(_STATUS.sub("", str(error))) from error
    if value.type() == _BOOL:  # most are; the quick way
        return value.value()
    return _take(value, _Budget(MAX_RESULT, "the result"), 0)


class _Budget:
    """Counts what goes in or comes out, so that a small text cannot ask for much work."""

    __slots__ = ("left", "what")

    def __init__(self, limit: int, what: str) -> None:
        self.left = limit
        self.what = what

    def take(self, cost: int, depth: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise EvaluationError(f"{self.what} is too large for an expression")
        if depth > MAX_DEPTH:
            raise EvaluationError(f"{self.what} is nested deeper than {MAX_DEPTH} levels")


def bind(values: Mapping[str, Any], wanted: Wanted, limit: int = MAX_BOUND) -> dict[str, Any]:
    """A copy of the wanted parts of JSON data that the library takes without harm: what is absent stays
    absent. Raises EvaluationError.
    """
    return _bind_parts(values, wanted, _Budget(limit, "the data it reads"), 0)


def _bind_parts(values: Mapping[str, Any], wanted: Wanted, budget: _Budget, depth: int) -> dict[str, Any]:
    bound: dict[str, Any] = {}
    for key, inner in wanted.items():
        value = values.get(key, _MISSING)
        if value is _MISSING:
            continue
        if inner is not None and isinstance(value, Mapping):
            bound[key] = _bind_parts(value, inner, budget, depth + 1)
        else:
            bound[key] = _bind(value, budget, depth)
    return bound


def _bind(value: Any, budget: _Budget, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        budget.take(len(value) + _NODE_COST, depth)
        return _checked_text(value)
    budget.take(_NODE_COST, depth)
    if kind is int:
        return value if _INT_LOW <= value < _INT_HIGH else _pack_big(value)
    if value is None or kind is bool or kind is float:
        return value
    if isinstance(value, Mapping):
        return {_bind_key(key, budget, depth): _bind(item, budget, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_bind(item, budget, depth + 1) for item in value]
    raise EvaluationError(f"a value of type {kind.__name__} is not JSON")


def _bind_key(key: Any, budget: _Budget, depth: int) -> str:
    if not isinstance(key, str):
        raise EvaluationError("a key that is not text is not JSON")
    budget.take(len(key), depth)
    return _checked_text(key)


def _checked_text(text: str) -> str:
    if "\0" in text:
        raise EvaluationError("text that holds U+0000 cannot be evaluated")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise EvaluationError("text that holds half a surrogate pair cannot be evaluated") from error
    return text


def _pack_big(number: int) -> bytes:
    """An integer over 64 bits as bytes that compare like the numbers and come back exactly.

    Against an ordinary number, `==` is false and `<` has no overload, so an overflow is an error, not a guess.
    """
    digits = f"{abs(number):x}"
    body = f"{len(digits):08x}{digits}"
    return _BIG + (b"p" + body.encode() if number >= 0 else b"n" + body.translate(_MIRROR).encode())


def _unpack_big(data: bytes) -> int:
    match = _PACKED.fullmatch(data)
    if match is None:
        raise EvaluationError("the result is bytes, which JSON does not know; use string(...)")
    is_negative = match[1] == b"n"
    body = match[2].decode()
    digits = (body.translate(_MIRROR) if is_negative else body)[8:]
    return -int(digits, 16) if is_negative else int(digits, 16)


def _take(value: Any, budget: _Budget, depth: int) -> Any:
    kind = value.type().name()
    budget.take(_NODE_COST, depth)
    # value() of null hands out a reference to None that it does not own: a few thousand of those end the
    # process on Python 3.11. Null is told by its type alone; plain_value() is never called, it does the same inside.
    if kind == "NULL":
        return None
    if kind.startswith("LIST"):
        return [_take(item, budget, depth + 1) for item in value.value()]
    if kind.startswith("MAP"):
        return {_take_key(key, budget): _take(item, budget, depth + 1) for key, item in value.value().items()}
    convert = _SCALARS.get(kind)
    if convert is None:
        raise EvaluationError(f"the result is a {kind.lower()}, which JSON does not know")
    return convert(value.value(), budget)


def _take_key(key: Any, budget: _Budget) -> str:
    if not isinstance(key, str):
        raise EvaluationError("the result has a key that is not text, which JSON does not know")
    return _text(key, budget)


def _text(text: str, budget: _Budget) -> str:
    budget.take(len(text), 0)
    if "\0" in text:
        raise EvaluationError("the result holds U+0000, which cannot be stored")
    return text


def _float(number: float, _: _Budget) -> float:
    if not isfinite(number):
        raise EvaluationError(f"the result is {number}, which JSON does not know")
    return number


def _timestamp(moment: datetime, _: _Budget) -> str:
    text = moment.astimezone(UTC).isoformat(timespec="microseconds" if moment.microsecond else "seconds")
    return text.replace("+00:00", "Z")


def _duration(length: timedelta, _: _Budget) -> str:
    return f"{length / timedelta(seconds=1):.6f}".rstrip("0").rstrip(".") + "s"


def _error(message: str, _: _Budget) -> Any:
    raise EvaluationError(_explain(message), is_absent=bool(_ABSENT.match(message)))


def _explain(message: str) -> str:
    text = _STATUS.sub("", message)[:300]
    if "bytes" in text:
        text += " (here, bytes stand for an integer over 64 bits)"
    return text


_SCALARS: Mapping[str, Callable[[Any, _Budget], Any]] = {
    "BOOL": lambda value, _: value,
    "INT": lambda value, _: value,
    "UINT": lambda value, _: value,
    "DOUBLE": _float,
    "STRING": _text,
    "BYTES": lambda value, _: _unpack_big(bytes(value)),
    "TIMESTAMP": _timestamp,
    "DURATION": _duration,
    "ERROR": _error,
}
