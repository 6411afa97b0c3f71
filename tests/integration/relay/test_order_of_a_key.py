"""Records of one key go out in the order in which their senders were answered."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from processors.adapters.postgres.door import PostgresDoor
from processors.adapters.postgres.wakeups import Notifier
from processors.ports.door import Acceptance
from schemas.ids import new_event_id
from tests.integration.relay.conftest import Outbox, Stage

KEYS, EACH, DOORS = 6, 20, 2


@pytest.mark.timeout(180)
async def test_e02_what_was_answered_before_the_next_was_sent_goes_out_before_it(stage: Stage) -> None:
    """Through two doors, whose transactions overlap with each other and with some that begin early and end late."""
    async with AsyncExitStack() as resources:
        notifier = Notifier(stage.dsn)
        resources.push_async_callback(notifier.aclose)
        doors = [PostgresDoor(stage.dsn, stage.topic, notifier, lambda _: None) for _ in range(DOORS)]
        for door in doors:
            await door.open()
            resources.push_async_callback(door.aclose)
        early = [await resources.enter_async_context(stage.writer()) for _ in range(3)]
        await resources.enter_async_context(stage.relay())
        disturbing = [asyncio.create_task(begin_early(outbox, n)) for n, outbox in enumerate(early)]
        await asyncio.gather(*(send_in_turn(doors, f"key-{n}") for n in range(KEYS)))
        await asyncio.gather(*disturbing)
        last = [f"key-{n}/{EACH - 1}" for n in range(KEYS)]
        records = await stage.until_published(*last, *(f"early-{n}/9" for n in range(3)), seconds=60)
    for n in range(KEYS):
        key = f"key-{n}"
        assert [record.value for record in records if record.key == key] == [f"{key}/{m}" for m in range(EACH)]


async def send_in_turn(doors: list[PostgresDoor], key: str) -> None:
    for number in range(EACH):
        value = f"{key}/{number}"
        await doors[number % DOORS].accept(
            Acceptance("shop", value, "header", b"h" * 32, new_event_id(1_780_000_000_000), key, None, value.encode())
        )


async def begin_early(outbox: Outbox, number: int) -> None:
    """Transactions whose number is from long before their rows."""
    for n in range(10):
        async with outbox.conn.transaction():
            await outbox.conn.execute("select pg_current_xact_id()")
            await outbox.conn.execute("select pg_sleep(0.03)")
            await outbox.put(f"early-{number}/{n}", key=f"early-{number}")
