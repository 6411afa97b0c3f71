"""Templates: `{{ expression }}` inside text, also inside lists and mappings, compiled to closures.

Text that is one template gives the expression's value with its type; anything else gives text. A value
that cannot be text without a decision (null) is refused, never written as "null".
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from schemas.errors import Refused
from topology.expressions import ALL_VARIABLES, Expression, compile_expression
from topology.lexing import find_end

MAX_TEXT = 1024 * 1024

Scope = Mapping[str, Any]
Encode = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled value. `expressions` are those it holds."""

    evaluate: Callable[[Scope], Any]
    expressions: tuple[Expression, ...]

    def render(self, scope: Scope) -> Any:
        """The value. Parts without templates are shared, not copied. Raises Refused E_EXPRESSION."""
        return self.evaluate(scope)


def compile_template(
    value: Any, variables: tuple[str, ...] = ALL_VARIABLES, *, encode: Encode | None = None
) -> Template:
    """Compile text, or a list or mapping of values. With `encode` the result is always text and each
    inserted value passes through it. Raises Refused E_EXPRESSION; `offset` in its details counts in the text.
    """
    if isinstance(value, str):
        return _compile_text(value, variables, encode)
    if isinstance(value, Mapping):
        return _compile_mapping({key: compile_template(item, variables) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return _compile_list([compile_template(item, variables) for item in value])
    return _constant(value)


def has_template(text: str) -> bool:
    return "{{" in text


def text_of(value: Any) -> str:
    """A value as part of a text. Raises Refused E_EXPRESSION for null and for what is no Unicode text."""
    if isinstance(value, str):
        return _encodable(value)
    if value is None:
        raise Refused("E_EXPRESSION", "null cannot become text; decide with `x == null ? '' : x`")
    try:
        return _encodable(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused("E_EXPRESSION", f"this value cannot become text: {error}") from error


def _encodable(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Refused("E_EXPRESSION", "text with half a surrogate pair cannot be sent anywhere") from error
    return text


def _constant(value: Any) -> Template:
    return Template(lambda _: value, ())


@lru_cache(maxsize=4096)
def _compile_text(text: str, variables: tuple[str, ...], encode: Encode | None) -> Template:
    parts = _split(text, variables)
    expressions = tuple(part for part in parts if isinstance(part, Expression))
    if not expressions:
        return _constant(text)
    if encode is None and len(parts) == 1:
        return Template(expressions[0].evaluate, expressions)
    return Template(_joiner(parts, encode or str), expressions)


def _joiner(parts: Sequence[str | Expression], encode: Encode) -> Callable[[Scope], str]:
    def join(scope: Scope) -> str:
        pieces = [part if isinstance(part, str) else encode(text_of(part.evaluate(scope))) for part in parts]
        if sum(map(len, pieces)) > MAX_TEXT:
            raise Refused("E_EXPRESSION", f"the text of a template would pass {MAX_TEXT} characters")
        return "".join(pieces)

    return join


def _split(text: str, variables: tuple[str, ...]) -> list[str | Expression]:
    parts: list[str | Expression] = []
    at = 0
    while (start := text.find("{{", at)) >= 0:
        end = find_end(text, start + 2)
        if end is None:
            raise Refused("E_EXPRESSION", "`{{` has no `}}`", details={"offset": start})
        if start > at:
            parts.append(text[at:start])
        parts.append(_compile_at(text[start + 2 : end], start + 2, variables))
        at = end + 2
    if at < len(text):
        parts.append(text[at:])
    return parts


def _compile_at(text: str, offset: int, variables: tuple[str, ...]) -> Expression:
    lead = len(text) - len(text.lstrip())
    try:
        return compile_expression(text.strip(), variables)
    except Refused as error:
        inner = error.details.get("offset", 0)
        where = offset + lead + (inner if isinstance(inner, int) else 0)
        raise Refused(error.code, error.message, details={"offset": where}) from error


def _compile_mapping(items: Mapping[str, Template]) -> Template:
    expressions = tuple(expression for item in items.values() for expression in item.expressions)
    if not expressions:
        return _constant({key: item.render({}) for key, item in items.items()})
    pairs = [(key, item.evaluate) for key, item in items.items()]
    return Template(lambda scope: {key: evaluate(scope) for key, evaluate in pairs}, expressions)


def _compile_list(items: Sequence[Template]) -> Template:
    expressions = tuple(expression for item in items for expression in item.expressions)
    if not expressions:
        return _constant([item.render({}) for item in items])
    parts = [item.evaluate for item in items]
    return Template(lambda scope: [evaluate(scope) for evaluate in parts], expressions)
