"""Whatever of asyncio a body uses: the turns of a life, and of any resumption of it, are the same."""

import asyncio
from typing import Any

import pytest

from anthares44.automation import Context, StepError, step
from tests.unit.sdk.lives import Life, at, deliver, new_run, told

SEEDS = range(12)


def run(name: str, **more: Any) -> "asyncio.Future[Any]":
    return step.run(name, timeout="10s", fn=lambda: name, **more)


async def gathers(ctx: Context, given: Any) -> Any:
    first = await asyncio.gather(*(run(f"a{n}") for n in range(4)), return_exceptions=True)
    second = await asyncio.gather(run("b"), step.sleep("c", "5s"))
    return [str(part) for part in first], second, ctx.random()


async def gathers_coroutines(ctx: Context, given: Any) -> Any:
    async def two(name: str) -> list[Any]:
        one = await run(f"{name}-one")
        return [one, await run(f"{name}-two"), ctx.random()]

    return await asyncio.gather(two("x"), two("y"), two("z"))


async def waits_for(ctx: Context, given: Any) -> Any:
    out = []
    for name in ("a", "b", "c"):
        try:
            out.append(await asyncio.wait_for(run(name), 3))
        except TimeoutError:
            out.append(f"late {name}")
            await run(f"instead-of-{name}")
    return out


async def times_out(ctx: Context, given: Any) -> Any:
    out = []
    for name in ("a", "b"):
        try:
            async with asyncio.timeout(2.5) as limit:
                out.append(await run(name))
                limit.reschedule(asyncio.get_running_loop().time() + 7)
                out.append(await run(f"{name}-more"))
        except TimeoutError:
            out.append(f"late {name}")
    return [out, asyncio.get_running_loop().time()]


async def groups(ctx: Context, given: Any) -> Any:
    async def one(name: str) -> Any:
        return [await run(name), await run(f"{name}-then")]

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(name)) for name in ("a", "b", "c")]
        return [task.result() for task in tasks]
    except* StepError as errors:
        await run("mend")
        return_value = [str(error) for error in errors.exceptions]
    return return_value


async def shields(ctx: Context, given: Any) -> Any:
    kept = run("kept")
    try:
        return await asyncio.wait_for(asyncio.shield(kept), 2)
    except TimeoutError:
        return ["late", await kept]


async def limits(ctx: Context, given: Any) -> Any:
    places = asyncio.Semaphore(2)
    order = []

    async def one(name: str) -> None:
        async with places:
            order.append(await run(name))

    await asyncio.gather(*(one(f"s{n}") for n in range(6)))
    return order


async def races(ctx: Context, given: Any) -> Any:
    steps = [asyncio.ensure_future(run(f"r{n}")) for n in range(5)]
    done, pending = await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
    for future in pending:
        future.cancel()
    await run("after")
    return [len(done), len(pending), [str(ctx.uuid()) for _ in pending]]


async def queues(ctx: Context, given: Any) -> Any:
    queue: asyncio.Queue[str] = asyncio.Queue(1)

    async def produce() -> None:
        for n in range(3):
            await queue.put(await run(f"p{n}"))

    producer = asyncio.create_task(produce())
    got = [[await queue.get(), await run(f"q{n}")] for n in range(3)]
    await producer
    return got


async def completes(ctx: Context, given: Any) -> Any:
    seen = []
    async for future in step.as_completed([run(f"a{n}") for n in range(4)]):
        seen.append(await future)
        await run(f"after-{seen[-1]}")
    return seen + [await outcome for outcome in step.as_completed([run(f"b{n}") for n in range(3)])]


async def completes_as_in_asyncio(ctx: Context, given: Any) -> Any:
    return [await outcome for outcome in asyncio.as_completed([run(f"a{n}") for n in range(4)])]


async def lets_go(ctx: Context, given: Any) -> Any:
    run("never-awaited")
    sleeper = asyncio.create_task(asyncio.sleep(60))
    await run("a")
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper
    return await run("b")


async def generates(ctx: Context, given: Any) -> Any:
    closed = []

    async def numbers() -> Any:
        try:
            for n in range(5):
                yield await run(f"g{n}")
        finally:
            closed.append(await run("closing"))

    async for number in numbers():
        if number == "g1":
            break
    await run("on")
    return closed


BODIES = [
    gathers,
    gathers_coroutines,
    waits_for,
    times_out,
    groups,
    shields,
    limits,
    races,
    queues,
    completes,
    completes_as_in_asyncio,
    lets_go,
    generates,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("failing", [(), ("b", "a1")], ids=["all-succeed", "some-fail"])
def test_every_resumption_goes_on_as_the_life_did(body: Any, failing: tuple[str, ...]):
    for seed in SEEDS:
        life = Life(body, seed, failing)
        assert life.ended is not None, "the body never ended"
        for cut in range(len(life.history) + 1):
            run, turn = life.resumed(cut)
            assert run.blocked is None, run.blocked
            open_before = asked_and_open(life, cut)
            assert set(told(turn)[1]) == open_before
            turns = [told(turn)]
            for entry in life.history[cut:]:
                if turns[-1][2] is not None or run.over:
                    break
                turns.append(told(deliver(run, entry)))
            assert turns[-1][2] == life.ended or told(turn)[2] == life.ended


def asked_and_open(life: Life, cut: int) -> set[str]:
    """What was asked for in the turns up to the cut and has no record before it."""
    known = {entry["item"] for entry in life.history[:cut]}
    last = life.history[cut - 1]["seq"] if cut else 0
    asked: dict[str, str] = {}
    for after, requests, _ in life.turns:
        if after > last:
            continue
        for request in requests:
            kind, item = request.split()[:2]
            if kind == "cancel":
                asked.pop(item, None)
            elif item not in known:
                asked[item] = request
    return set(asked.values())


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_the_same_outcomes_give_the_same_turns(body: Any):
    for seed in SEEDS:
        life, again = Life(body, seed), new_run(body)
        turns = [told(again.begin())]
        for entry in life.history:
            turn = told(deliver(again, entry))
            if entry["status"] != "cancelled":
                turns.append(turn)
        assert turns == life.turns


def test_a_call_is_requested_at_once_and_in_the_order_of_the_calls():
    async def body(ctx: Context, given: Any) -> Any:
        futures = [run(name) for name in ("c", "a", "b")]
        return await asyncio.gather(*reversed(futures))

    assert told(new_run(body).begin())[1] == [f"step {name} 10 after 0" for name in ("c", "a", "b")]


def test_a_delay_becomes_a_durable_timer_and_is_let_go_with_it():
    async def body(ctx: Context, given: Any) -> Any:
        loop = asyncio.get_running_loop()
        fired = loop.create_future()
        loop.call_later(2, fired.set_result, "two")
        third = loop.call_later(3, fired.set_result, "three")
        loop.call_later(0, run, "at-once")
        result = await fired
        third.cancel()
        third.cancel()
        return result

    body_run = new_run(body)
    assert told(body_run.begin())[1] == ["timer ~t1 2 after 0", "timer ~t2 3 after 0", "step at-once 10 after 0"]
    turn = body_run.deliver(1, "~t1", "succeeded", at=at(2))
    assert told(turn) == (1, ["cancel ~t2 after 1"], {"status": "succeeded", "value": '"two"'})


def test_what_is_asked_for_and_let_go_in_one_turn_is_not_told():
    async def body(ctx: Context, given: Any) -> Any:
        run("a").cancel()
        asyncio.get_running_loop().call_later(5, print).cancel()
        await run("b")

    assert told(new_run(body).begin())[1] == ["step b 10 after 0"]


def test_time_in_the_body_is_the_recorded_one():
    async def body(ctx: Context, given: Any) -> Any:
        loop = asyncio.get_running_loop()
        times = [str(ctx.now()), loop.time()]
        await run("a")
        return [*times, str(ctx.now()), loop.time()]

    body_run = new_run(body)
    body_run.begin()
    ended = body_run.deliver(1, "a", "succeeded", at=at(1.5), value="1").ended
    assert ended == {
        "status": "succeeded",
        "value": '["2026-11-29 20:00:00+00:00",0.0,"2026-11-29 20:00:01.500000+00:00",1.5]',
    }


def test_a_clock_that_was_set_back_does_not_turn_the_loop_back():
    async def body(ctx: Context, given: Any) -> Any:
        times = []
        for name in ("a", "b", "c"):
            await run(name)
            times.append(asyncio.get_running_loop().time())
        return times

    body_run = new_run(body)
    body_run.begin()
    for seq, (name, when) in enumerate((("a", 5), ("b", 3), ("c", 6)), 1):
        turn = body_run.deliver(seq, name, "succeeded", at=at(when), value="1")
    assert turn.ended == {"status": "succeeded", "value": "[5.0,5.0,6.0]"}


def test_sets_of_futures_iterate_in_the_order_of_the_run():
    async def body(ctx: Context, given: Any) -> Any:
        made = [run(f"s{n}") for n in range(40)]
        return [future.item for future in set(made)]  # type: ignore[attr-defined]

    assert new_run(body).begin().ended == new_run(body).begin().ended
