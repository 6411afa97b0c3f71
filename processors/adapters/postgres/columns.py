"""Rows turned into the arrays that set-based statements take."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any


def columns(rows: Sequence[Any], names: Iterable[str]) -> dict[str, list[Any]]:
    """One array a column, in the order of the rows."""
    return {name: list(map(attrgetter(name), rows)) for name in names}


def columns_of(rows: Sequence[Any], kind: type) -> dict[str, list[Any]]:
    """All fields of a dataclass as columns."""
    if not is_dataclass(kind):
        raise TypeError(kind)
    return columns(rows, [field.name for field in fields(kind)])
