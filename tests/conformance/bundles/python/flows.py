"""The workflows that the transcripts and the tests of the host process play."""

import asyncio
import contextvars
import os
import sys
import threading
import time

from anthares44.automation import PermanentError, RetryableError, StepError, step, workflow

WHO = contextvars.ContextVar("who", default="nobody")


class Api:
    async def create(self, name, request_id):
        await asyncio.sleep(0)
        return {"id": f"t-{name}", "db_id": "db-1", "key": request_id, "api_key": "k-123"}

    def create_database(self, tenant_id):
        return {"tenant": tenant_id, "thread": threading.current_thread() is not threading.main_thread()}

    def drop(self, db_id):
        return db_id


api = Api()


@workflow("tenant-onboard", version=4)
async def onboard(ctx, input):
    tenant = await step.run(
        "create-tenant",
        timeout="10s",
        fn=lambda: api.create(name=input["name"], request_id=ctx.idempotency_key),
    )
    await step.run(
        "provision-db",
        timeout="120s",
        retry={"max": 4, "strategy": "exponential-jitter"},
        compensate=lambda: api.drop(tenant["db_id"]),
        fn=lambda: api.create_database(tenant_id=tenant["id"]),
    )
    await step.sleep("cooldown", "30s")
    return {"tenant_id": tenant["id"], "at": ctx.now()}


async def named(name):
    return name


def run(name, **more):
    return step.run(name, **{"timeout": 10, "fn": lambda: named(name)} | more)


@workflow("parallel", version=1)
async def parallel(ctx, input):
    async def two(name):
        await run(name)
        return [await run(f"{name}-then"), ctx.random()]

    return await asyncio.gather(two("a"), two("b"), two("c"))


@workflow("deadline", version=1)
async def deadline(ctx, input):
    async def slow():
        await asyncio.Event().wait()

    try:
        return await asyncio.wait_for(run("slow", fn=slow), 5)
    except TimeoutError:
        return await run("instead")


@workflow("resumed", version=1)
async def resumed(ctx, input):
    flying = run("flying")
    await run("a")
    nap = step.sleep("nap", "60s")
    await run("b")
    return [await flying, await nap, await run("c"), ctx.now(), ctx.random()]


@workflow("twice", version=1)
async def twice(ctx, input):
    await asyncio.gather(run("same"), run("same"))


@workflow("no-timeout", version=1)
async def no_timeout(ctx, input):
    await step.run("careless", fn=lambda: 1)


@workflow("reads-the-net", version=1)
async def reads_the_net(ctx, input):
    await asyncio.open_connection("127.0.0.1", 1)


@workflow("fails", version=1)
async def fails(ctx, input):
    how = {
        "raises": raises,
        "permanent": permanent,
        "later": later,
        "tuple": lambda: named((1, 2)),
        "nested": lambda: nested(),
        "exits": exits,
        "exits-in-a-thread": lambda: sys.exit("over"),
    }[input]
    try:
        return await run(input, fn=how)
    except StepError as error:
        return {"code": error.code, "type": error.type, "message": error.message}


async def raises():
    raise ValueError("no such tenant")


async def permanent():
    raise PermanentError("the card is stolen", code="E_CARD_STOLEN")


async def later():
    raise RetryableError("the partner is closed", retry_after=90)


async def nested():
    await run("inner")


async def exits():
    sys.exit(3)


@workflow("closes", version=1)
async def closes(ctx, input):
    try:
        await run("waits", fn=never)
    finally:
        await run("refused")


async def never():
    await asyncio.Event().wait()


@workflow("stubborn", version=1)
async def stubborn(ctx, input):
    while True:
        try:
            await asyncio.shield(run("waits", fn=never))
        except asyncio.CancelledError:
            await asyncio.Event().wait()


@workflow("calls", version=1)
async def calls(ctx, input):
    """One step of the kind that the input names, with the timeout that it names."""
    WHO.set("the body")
    return await run(
        "only", fn=KINDS[input["kind"]](input), timeout=input.get("timeout", 10), exclusive=bool(input.get("exclusive"))
    )


def sleeps_in_thread(input):
    return lambda: time.sleep(input["seconds"])


def sleeps_on_loop(input):
    async def sleeps():
        await asyncio.sleep(input["seconds"])

    return sleeps


def swallows_cancel(input):
    async def swallows():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(input.get("seconds", 0))
        return "went on"

    return swallows


def asks_for_too_much(input):
    return lambda: len(b"x" * (1 << 46))


def blocks_loop(input):
    async def blocks():
        time.sleep(input["seconds"])  # the blocking line
        return "done"

    return blocks


def says_where(input):
    async def where():
        return [WHO.get(), threading.current_thread() is threading.main_thread()]

    return where


def says_where_in_thread(input):
    return lambda: [WHO.get(), threading.current_thread() is threading.main_thread()]


PLACES = []


def returns_awaitable(input):
    def call():
        PLACES.append(threading.current_thread() is threading.main_thread())
        return named(PLACES)

    return call


def large_result(input):
    return lambda: "é" * input["letters"]


def dies(input):
    return lambda: os._exit(9)


def prints(input):
    def call():
        print("to the output")
        print("to the errors", file=sys.stderr)

    return call


KINDS = {
    function.__name__: function
    for function in (
        sleeps_in_thread,
        sleeps_on_loop,
        swallows_cancel,
        asks_for_too_much,
        blocks_loop,
        says_where,
        says_where_in_thread,
        returns_awaitable,
        large_result,
        dies,
        prints,
    )
}


@workflow("draws", version=1)
async def draws_in_a_step(ctx, input):
    async def draw():
        return [ctx.random(), str(ctx.uuid()), ctx.idempotency_key]

    return await run("draw", fn=draw)


@workflow("logs", version=1)
async def logs(ctx, input):
    ctx.log.info("in the body of %s", ctx.run_id)

    def told():
        ctx.log.warning("in a thread")

    await run("told", fn=told)


@workflow("floods", version=1)
async def floods(ctx, input):
    def flood():
        until, lines = time.monotonic() + input["seconds"], 0
        while time.monotonic() < until:
            ctx.log.info("still at line %s of %s", lines, "x" * 1000)
            lines += 1
        return lines

    async def floods_and_blocks():
        return flood()

    return await run("flood", fn=floods_and_blocks if input["blocks"] else flood, timeout=30)


@workflow("noop3", version=1)
async def noop3(ctx, input):
    for n in range(3):
        await step.run(f"s{n}", timeout=10, fn=noop)
    return {"ok": True}


async def noop():
    return {"ok": True}


@workflow("polls", version=1)
async def polls(ctx, input):
    count = 0
    while count < 10**9:  # the looping line
        count += 1


@workflow("careless", version=1)
async def careless(ctx, input):
    try:
        DOES[input["does"]](input)
    except Exception:
        return "went on"
    return "did it"


def fetches(input):
    import urllib.request

    urllib.request.urlopen("http://127.0.0.1:9/", timeout=1)


def connects(input):
    import socket

    with socket.socket() as sock:
        sock.connect(("127.0.0.1", 9))


def runs_a_program(input):
    import subprocess

    subprocess.run(["true"])


def runs_a_command(input):
    os.system("true")


def sleeps(input):
    time.sleep(0.01)


def writes(input):
    with open(input["file"], "w") as file:
        file.write("x")


def reads(input):
    with open(__file__) as file:
        file.read()


def imports(input):
    import wave

    assert wave


DOES = {
    function.__name__: function
    for function in (fetches, connects, runs_a_program, runs_a_command, sleeps, writes, reads, imports)
}
