"""Expectations: what the demo promised, whether it held, and what was seen where it did not."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expectation:
    text: str
    held: bool
    seen: str


class Expectations:
    def __init__(self) -> None:
        self._all: list[Expectation] = []

    def expect(self, text: str, held: bool, seen: object = "") -> None:
        """`seen` is shown beside the text, also where it held."""
        self._all.append(Expectation(text, held, str(seen)))

    def __iter__(self) -> Iterator[Expectation]:
        return iter(self._all)

    @property
    def all_held(self) -> bool:
        return all(one.held for one in self._all)
