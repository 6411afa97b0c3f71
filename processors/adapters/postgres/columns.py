"""Rows turned into the arrays that set-based statements take."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple


def columns(rows: Sequence[Any], names: Iterable[str]) -> dict[str, list[Any]]:
    """One array a column, in the order of the rows."""
    return {name: list(map(attrgetter(name), rows)) for name in names}


def columns_of(rows: Sequence[Struct], kind: type[Struct]) -> dict[str, list[Any]]:
    """All fields of a struct as columns; each row is taken apart once."""
    if not rows:
        return {name: [] for name in kind.__struct_fields__}
    return dict(zip(kind.__struct_fields__, map(list, zip(*map(astuple, rows), strict=True)), strict=True))
