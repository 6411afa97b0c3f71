"""Rows turned into the arrays that set-based statements take."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct


def columns(rows: Sequence[Any], names: Iterable[str]) -> dict[str, list[Any]]:
    """One array a column, in the order of the rows."""
    return {name: list(map(attrgetter(name), rows)) for name in names}


def columns_of(rows: Sequence[Struct], kind: type[Struct]) -> dict[str, list[Any]]:
    """All fields of a struct as columns."""
    return columns(rows, kind.__struct_fields__)
