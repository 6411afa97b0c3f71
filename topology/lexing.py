"""Cuts CEL text into tokens: enough to find where a template ends and which data an expression reads.

The CEL compiler decides what is valid. What is said here about paths errs towards reading more.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

PathParts = tuple[str | int, ...]

_TOKEN = re.compile(
    r"""
      (?P<space> \s+ | //[^\n]* )
    | (?P<string> [rRbB]{0,2} (?: \"\"\" (?:\\.|[^\\])*? \"\"\" | ''' (?:\\.|[^\\])*? '''
                              | " (?:\\.|[^\\"\n])* " | ' (?:\\.|[^\\'\n])* ' ) )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<number> (?:0[xX][0-9a-fA-F]+ | [0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?) [uU]? )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN_STRING = re.compile(r"""[rR]?(?:"([^"\\]*)"|'([^'\\]*)')""")
_INDEX = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    start: int


_END = Token("end", "", -1)


def scan(text: str, start: int = 0) -> Iterator[Token]:
    """Tokens of `text` from `start` on, without spaces and comments."""
    for match in _TOKEN.finditer(text, start):
        if match.lastgroup != "space":
            yield Token(match.lastgroup or "mark", match[0], match.start())


def find_end(text: str, start: int) -> int | None:
    """Where the `}}` stands that closes a template whose expression begins at `start`."""
    depth = 0
    for token in scan(text, start):
        if token.kind != "mark":
            continue
        if token.text == "{":
            depth += 1
        elif token.text == "}" and depth:
            depth -= 1
        elif token.text == "}" and text.startswith("}}", token.start):
            return token.start
    return None


def read_paths(tokens: list[Token], roots: Collection[str]) -> list[PathParts]:
    """Every path (`input.a`, `steps['x'].y`) that begins with one of `roots`, in order of appearance."""
    return [_path_from(tokens, at)[0] for at, token in enumerate(tokens) if token.text in roots and _is_name(token)]


def whole_path(tokens: list[Token], roots: Collection[str]) -> PathParts | None:
    """The path, where the expression is nothing but one path (list indexes included)."""
    if not tokens or not _is_name(tokens[0]) or tokens[0].text not in roots:
        return None
    parts, end = _path_from(tokens, 0, with_indexes=True)
    return parts if end == len(tokens) else None


def _is_name(token: Token) -> bool:
    return token.kind == "name"


def _path_from(tokens: list[Token], at: int, *, with_indexes: bool = False) -> tuple[PathParts, int]:
    parts: list[str | int] = [tokens[at].text]
    at += 1
    while True:
        part, step = _next_part(tokens, at)
        if part is None or (isinstance(part, int) and not with_indexes):
            return tuple(parts), at
        parts.append(part)
        at += step


def _next_part(tokens: list[Token], at: int) -> tuple[str | int | None, int]:
    """The selection at `at` (`.name` or `['name']` or `[0]`) and how many tokens it takes."""
    first, second, third = (*tokens[at : at + 3], _END, _END, _END)[:3]
    if first.text == "." and _is_name(second):
        return (None, 0) if third.text == "(" else (second.text, 2)
    if first.text == "[" and third.text == "]":
        string = _PLAIN_STRING.fullmatch(second.text) if second.kind == "string" else None
        if string:
            return (string[1] if string[1] is not None else string[2]), 3
        if _INDEX.fullmatch(second.text):
            return int(second.text), 3
    return None, 0
