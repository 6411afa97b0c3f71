"""Results and errors are the author's objects: what goes wrong while they are read is a failure of their run alone."""

import asyncio
from typing import Any

from anthares44.automation import Context
from tests.unit.sdk.lives import new_run, settings


class Unwritable(list[int]):
    def __iter__(self) -> Any:
        raise ZeroDivisionError("inside the author's list")


class Unreadable(Exception):
    """It lets nobody read it."""

    def __str__(self) -> str:
        raise GeneratorExit

    __repr__ = __str__


def test_a_result_that_fails_while_it_is_written_fails_the_run():
    async def body(ctx: Context, given: Any) -> Any:
        return Unwritable([1])

    ended = new_run(body).begin().ended
    assert ended is not None
    assert (ended["error"]["code"], ended["error"]["message"]) == ("E_WORKFLOW_FAILED", "inside the author's list")


def test_an_error_that_nobody_can_read_fails_the_run():
    async def body(ctx: Context, given: Any) -> Any:
        raise Unreadable

    ended = new_run(body).begin().ended
    assert ended is not None
    assert ended["error"]["type"].endswith("Unreadable")
    assert ended["error"]["message"] == "(no text: GeneratorExit while reading the error)"


def test_what_nobody_awaits_and_nobody_can_show_is_told_all_the_same():
    async def loses() -> None:
        raise Unreadable

    class Callback:
        __repr__ = Unreadable.__str__

        def __call__(self) -> None:
            raise Unreadable

    async def body(ctx: Context, given: Any) -> Any:
        asyncio.create_task(loses(), name="loser")  # noqa: RUF006 - that is the mistake
        asyncio.get_running_loop().call_soon(Callback())
        await asyncio.sleep(0)
        return "done"

    lines: list[dict[str, Any]] = []
    assert new_run(body, settings(lines)).begin().ended == {"status": "succeeded", "value": '"done"'}
    assert [line["text"] for line in lines] == [
        "a callback failed, and cannot be shown: GeneratorExit()",
        "loser failed and was never awaited: <Unreadable>",
    ]


def test_a_warning_is_no_longer_than_a_line_of_the_log():
    async def loses() -> None:
        raise ValueError("x" * 100_000)

    async def body(ctx: Context, given: Any) -> Any:
        asyncio.create_task(loses())  # noqa: RUF006 - that is the mistake
        await asyncio.sleep(0)

    lines: list[dict[str, Any]] = []
    new_run(body, settings(lines)).begin()
    assert [len(line["text"].encode()) for line in lines] == [8 * 1024]
