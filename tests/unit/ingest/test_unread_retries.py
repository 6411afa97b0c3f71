"""Whether retry topics are worth a consumer is asked now and then, through outages, and never past a stop."""

import asyncio

import pytest

from processors.ingest.retries import until_unread
from schemas.errors import Unavailable


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processors.ingest.retries.LOOK_SECONDS", 0.01)


async def test_it_is_asked_until_something_lies_there() -> None:
    answers: list[bool | Unavailable] = [Unavailable("E_UNAVAILABLE", "away"), False, True, True]

    async def is_unread() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    await asyncio.wait_for(until_unread(is_unread, asyncio.Event()), 30)
    assert answers == [True]


async def test_a_stop_ends_the_waiting() -> None:
    stop, asked = asyncio.Event(), asyncio.Event()

    async def is_unread() -> bool:
        asked.set()
        return False

    waiting = asyncio.create_task(until_unread(is_unread, stop))
    await asyncio.wait_for(asked.wait(), 30)
    assert not waiting.done()
    stop.set()
    await asyncio.wait_for(waiting, 30)
