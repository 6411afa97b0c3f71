"""Rounds on a stand-in for the stack: a measurement that fails or hangs costs its own figures only."""

import asyncio
from types import TracebackType
from typing import Self

import pytest

from benchmarks import rounds
from benchmarks.figures import Figures, Scale


class NoStack:
    def __init__(self, options: object) -> None:
        """Nothing is started."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is stopped."""


async def nothing(*given: object) -> dict[str, str]:
    return {}


async def works(stack: object, scale: Scale) -> Figures:
    return {"works": 1.0}


async def fails(stack: object, scale: Scale) -> Figures:
    raise RuntimeError("no answer")


async def hangs(stack: object, scale: Scale) -> Figures:
    await asyncio.Event().wait()
    return {}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(rounds, "LocalStack", NoStack)
    monkeypatch.setattr(rounds.measure_w3, "publish", nothing)
    monkeypatch.setattr(rounds.measure_w3, "saturated", nothing)
    monkeypatch.setattr(rounds, "machine", nothing)
    monkeypatch.setattr(rounds, "ON_A_STACK", {"fails": fails, "hangs": hangs, "works": works, "grants": works})
    monkeypatch.setattr(rounds, "LONGEST_SECONDS", 0.01)
    return []


async def test_what_fails_or_hangs_is_told_and_the_others_go_on(said: list[str]) -> None:
    seen = await rounds.measure_all(2, ["fails", "hangs", "works"], Scale(), said.append)
    assert seen.rounds == [{"works": 1.0}, {"works": 1.0}]
    assert seen.failures == {"fails": "RuntimeError: no answer", "hangs": "TimeoutError: "}


async def test_grants_are_measured_in_the_last_round_only(said: list[str]) -> None:
    await rounds.measure_all(2, ["grants"], Scale(), said.append)
    assert said == ["round 1 of 2: the stack starts", "round 2 of 2: the stack starts", "round 2 of 2: grants"]


async def test_a_stack_that_does_not_start_costs_one_round(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    starts = iter([RuntimeError("no port"), None])

    async def publish(stack: object) -> None:
        if (problem := next(starts)) is not None:
            raise problem

    monkeypatch.setattr(rounds.measure_w3, "publish", publish)
    seen = await rounds.measure_all(2, ["works"], Scale(), said.append)
    assert seen.rounds == [{}, {"works": 1.0}]
    assert seen.failures == {"the stack": "RuntimeError: no port"}
