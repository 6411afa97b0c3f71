"""Shared questions: many who ask, few questions, and no answer older than its asker."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from processors.gateway import polling
from processors.gateway.lookups import SharedLookup
from processors.gateway.polling import SharedPoll
from schemas.errors import Unavailable


class Source:
    """Answers when it is told to, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.answers: dict[str, str] = {}
        self.open = asyncio.Event()
        self.was_asked = asyncio.Event()
        self.failure: Exception | None = None

    async def __call__(self, keys: Sequence[str]) -> Mapping[str, str]:
        self.asked.append(list(keys))
        self.was_asked.set()
        answers = dict(self.answers)
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return {key: answers[key] for key in keys if key in answers}


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_those_who_ask_while_a_question_is_under_way_share_the_next_one() -> None:
    source = Source()
    lookup = SharedLookup(source)
    first = asyncio.create_task(lookup.get("a"))
    await _turns()
    source.answers = {"a": "new"}
    later = [asyncio.create_task(lookup.get(key)) for key in ("a", "b", "a")]
    await _turns()
    source.open.set()
    assert await first is None  # its question began before the answer was there
    assert [await task for task in later] == ["new", None, "new"]
    assert source.asked == [["a"], ["a", "b"]]


async def test_with_spacing_those_who_come_soon_after_a_question_share_the_next() -> None:
    source = Source()
    source.open.set()
    lookup = SharedLookup(source, spacing=1.0)
    assert await lookup.get("a") is None
    later = []
    for key in "bcd":
        later.append(asyncio.create_task(lookup.get(key)))
        await _turns()
    await asyncio.gather(*later)
    assert source.asked == [["a"], ["b", "c", "d"]]


async def test_one_who_gives_up_costs_the_others_nothing() -> None:
    source = Source()
    source.answers = {"a": "1"}
    lookup = SharedLookup(source)
    gone, stays = asyncio.create_task(lookup.get("a")), asyncio.create_task(lookup.get("a"))
    await _turns()
    gone.cancel()
    source.open.set()
    assert await stays == "1"


async def test_a_failure_is_told_to_all_who_asked_and_to_nobody_after() -> None:
    source = Source()
    source.open.set()
    source.failure = Unavailable("E_UNAVAILABLE", "away")
    lookup = SharedLookup(source)
    told = await asyncio.gather(lookup.get("a"), lookup.get("b"), return_exceptions=True)
    assert [type(one) for one in told] == [Unavailable, Unavailable]
    source.failure = None
    assert await lookup.get("a") is None


async def test_all_who_wait_are_asked_about_in_one_question() -> None:
    source = Source()
    source.open.set()
    poll = SharedPoll(source)
    waiting = [asyncio.create_task(poll.wait(f"run_{number}", 20)) for number in range(50)]
    await _turns()
    source.answers = {f"run_{number}": "ended" for number in range(50)}
    assert set(await asyncio.gather(*waiting)) == {"ended"}
    assert len(source.asked) <= 3
    assert len(source.asked[0]) == 50


async def test_who_waits_too_long_hears_nothing_and_is_asked_about_no_more() -> None:
    source = Source()
    source.open.set()
    poll = SharedPoll(source)
    assert await poll.wait("run_1", 0.05) is None
    source.answers = {"run_2": "ended"}
    assert await poll.wait("run_2", 20) == "ended"
    assert source.asked[-1] == ["run_2"]


async def test_while_the_database_is_away_those_who_wait_go_on_waiting() -> None:
    source = Source()
    source.failure = Unavailable("E_UNAVAILABLE", "away")
    source.open.set()
    poll = SharedPoll(source)
    waiting = asyncio.create_task(poll.wait("run_1", 20))
    await source.was_asked.wait()
    source.failure, source.answers = None, {"run_1": "ended"}
    assert await waiting == "ended"


async def test_who_asks_for_what_may_be_there_already_is_answered_before_the_next_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(polling, "_SHORTEST", 30.0)
    source = Source()
    source.open.set()
    source.answers = {"a": "over"}
    poll = SharedPoll(source)
    async with asyncio.timeout(5.0):
        assert await poll.wait("a", 5.0, look_first=True) == "over"
        waiting = asyncio.create_task(poll.wait("b", 5.0))  # this one waits for its poll
        await _turns()
        assert source.asked == [["a"]]
        assert await poll.wait("a", 5.0, look_first=True) == "over"
    waiting.cancel()


async def test_a_hint_brings_the_next_question_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "_SHORTEST", 30.0)
    source = Source()
    source.open.set()
    source.answers = {"run_1": "ended"}
    poll = SharedPoll(source)
    waiting = asyncio.create_task(poll.wait("run_1", 20))
    await _turns()
    assert source.asked == []
    poll.hurry()
    assert await waiting == "ended"


async def test_a_defect_is_told_to_those_who_wait() -> None:
    source = Source()
    source.failure = ValueError("defect")
    source.open.set()
    poll = SharedPoll(source)
    with pytest.raises(ValueError, match="defect"):
        await poll.wait("run_1", 20)


async def test_those_who_wait_are_told_when_the_process_stops() -> None:
    source = Source()
    poll = SharedPoll(source)
    waiting = asyncio.create_task(poll.wait("run_1", 20))
    await _turns()
    await poll.close()
    with pytest.raises(Unavailable, match="E_SHUTTING_DOWN"):
        await waiting
    with pytest.raises(Unavailable, match="E_SHUTTING_DOWN"):
        await poll.wait("run_1", 20)
