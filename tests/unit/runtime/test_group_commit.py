"""Group commit: bounds of a batch and of the queue, and how long anybody waits."""

import asyncio
from collections.abc import Sequence

import pytest

from processors.runtime import group_commit
from processors.runtime.group_commit import GroupCommit
from schemas.errors import Broken, Unavailable
from tests.support.waiting import until


class Gate:
    """A writer that waits to be let through; `batches` are those it was given."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.opened = asyncio.Event()

    async def write(self, batch: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(batch))
        await self.opened.wait()
        return [-item for item in batch]


async def begun(gate: Gate, batches: int = 1) -> None:
    await until(lambda: len(gate.batches) >= batches, f"{batches} batches to begin")


async def test_what_gathers_while_a_batch_is_written_is_the_next_and_keeps_its_order() -> None:
    gate = Gate()
    commits = GroupCommit(gate.write, most=3)
    asked = [asyncio.create_task(commits.submit(item)) for item in range(8)]
    await begun(gate)
    gate.opened.set()
    assert await asyncio.gather(*asked) == [-item for item in range(8)]
    assert gate.batches == [[0, 1, 2], [3, 4, 5], [6, 7]]


async def test_a_batch_is_bounded_by_weight_and_one_heavy_item_goes_alone() -> None:
    gate = Gate()
    gate.opened.set()
    commits = GroupCommit(gate.write, lambda item: item, heaviest=10)
    await asyncio.gather(*(commits.submit(item) for item in (4, 5, 3, 50, 1, 2)))
    assert gate.batches == [[4, 5], [3], [50], [1, 2]]


async def test_nobody_waits_behind_too_much() -> None:
    gate = Gate()
    commits = GroupCommit(gate.write, lambda item: item, most=1, queued=3, weight=100)
    asked = [asyncio.create_task(commits.submit(1))]
    await begun(gate)
    asked += [asyncio.create_task(commits.submit(1)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="3 requests wait") as caught:
        await commits.submit(1)
    assert (caught.value.code, caught.value.details) == ("E_OVERLOADED", {"retry_after": 1})
    gate.opened.set()
    await asyncio.gather(*asked)
    gate.opened.clear()
    heavy = [asyncio.create_task(commits.submit(1))]
    await begun(gate, 5)
    heavy.append(asyncio.create_task(commits.submit(101)))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="1 requests wait"):
        await commits.submit(1)
    gate.opened.set()
    assert await asyncio.gather(*heavy) == [-1, -101]
    assert await commits.submit(7) == -7  # what was written weighs no more


async def test_whoever_comes_too_late_is_told_when_what_waits_will_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, now = Gate(), [0.0]
    gate.opened.set()
    commits = GroupCommit(gate.write, most=1, queued=10)
    monkeypatch.setattr(group_commit.time, "monotonic", lambda: now.append(now[-1] + 2.0) or now[-1])
    for _ in range(40):
        await commits.submit(1)  # two seconds each
    monkeypatch.undo()
    gate.opened.clear()
    written = len(gate.batches)
    asked = [asyncio.create_task(commits.submit(1))]
    await begun(gate, written + 1)
    asked += [asyncio.create_task(commits.submit(1)) for _ in range(10)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable) as caught:
        await commits.submit(1)
    assert caught.value.details == {"retry_after": 20}
    gate.opened.set()
    await asyncio.gather(*asked)


async def test_whoever_ran_out_of_patience_in_the_queue_is_not_written() -> None:
    gate = Gate()
    commits = GroupCommit(gate.write, most=1, patience=0.05)
    first, second = (asyncio.create_task(commits.submit(item)) for item in (1, 2))
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert [getattr(result, "code", None) for result in results] == ["E_UNAVAILABLE"] * 2
    assert "same key" in str(results[1])
    gate.opened.set()
    assert await commits.settled(10)
    assert gate.batches == [[1]]
    assert await commits.submit(3) == -3


async def test_settling_is_bounded() -> None:
    gate = Gate()
    commits = GroupCommit(gate.write)
    asked = asyncio.create_task(commits.submit(1))
    await begun(gate)
    assert not await commits.settled(0.01)
    gate.opened.set()
    assert await commits.settled()
    assert await asked == -1


async def test_a_bad_item_fails_alone() -> None:
    async def write(batch: Sequence[int]) -> Sequence[int]:
        if 13 in batch:
            raise Broken("E_INTERNAL", "13")
        return batch

    commits = GroupCommit(write)
    results = await asyncio.gather(*(commits.submit(item) for item in range(20)), return_exceptions=True)
    assert [place for place, one in enumerate(results) if isinstance(one, Broken)] == [13]
