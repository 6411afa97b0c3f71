"""Steps that are careless with the process that they share."""

import asyncio
import enum
import sys
import time

from anthares44.automation import PermanentError, step, workflow


class Steps(str, enum.Enum):
    """One that is shown by its name, and equal to its text."""

    PAY = "pay"


class Unreadable(PermanentError):
    @property
    def code(self):
        raise ValueError("no code")

    @code.setter
    def code(self, given):
        pass

    def __str__(self):
        raise SystemExit(4)


class Unbound:
    """A proxy with nothing behind it: it does not even tell its class."""

    @property
    def __class__(self):
        raise RuntimeError("nothing is bound here")

    def __call__(self):
        return "called"


class Fields(dict):
    """Its members as attributes, and no others."""

    __getattr__ = dict.__getitem__

    def __call__(self):
        async def later():
            return "called"

        return later()


async def exits():
    sys.exit(3)


async def exits_in_a_task():
    await asyncio.gather(exits(), asyncio.sleep(60))


async def stops_the_loop():
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)
    return "went on"


async def raises_unreadable():
    raise Unreadable


def raises_unreadable_in_thread():
    raise Unreadable


async def blocks_with_a_proxy():
    _proxy = Unbound()
    time.sleep(2.5)


async def naps():
    await asyncio.sleep(0.5)


KINDS = {
    function.__name__: function
    for function in (
        exits_in_a_task,
        stops_the_loop,
        raises_unreadable,
        raises_unreadable_in_thread,
        blocks_with_a_proxy,
        naps,
    )
} | {"a_proxy": Unbound(), "its_members_alone": Fields()}


@workflow("careless", version=1)
async def careless(ctx, input):
    return await step.run("only", timeout=10, fn=KINDS[input])


@workflow("enumerated", version=1)
async def enumerated(ctx, input):
    async def key():
        return ctx.idempotency_key

    return await step.run(Steps.PAY, timeout=10, fn=key)


@workflow("lets-a-generator-go", version=1)
async def lets_a_generator_go(ctx, input):
    """Whether it was closed by the loop in which it began."""
    own, closed_by = asyncio.get_running_loop(), []

    async def numbers():
        try:
            yield 1
        finally:
            closed_by.append(asyncio.get_running_loop())

    async for _ in numbers():
        break
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return [loop is own for loop in closed_by]
