"""A member of a group: steady while its handler takes long, told nothing too early, gone at once when it stops."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest

from processors.adapters.kafka.consumer_thread import ConsumerThread
from processors.adapters.kafka.faust_worker import FaustWorker
from processors.adapters.kafka.producer import KafkaProducer
from processors.ports.streams import ConsumerState, Phase, Record
from schemas.errors import Broken, Unavailable
from tests.integration.kafka.conftest import PARTITIONS, Kept, Place, Reading, in_its_thread, numbered
from tests.support.waiting import until

SESSION_SECONDS = 6.0  # what the consumer asks for, and the least that a broker grants
GOODBYE_SECONDS = 10.0
COMMIT_INTERVAL_SECONDS = 1.0

KILLED = """
import asyncio, sys
from processors.adapters.kafka.consumer import ConsumerSettings, consume

async def hold(records):
    print("took", len(records), flush=True)
    await asyncio.Event().wait()

settings = ConsumerSettings(sys.argv[1], sys.argv[2], sys.argv[3], "killed", metadata_max_age=1.0)
asyncio.run(consume(settings, hold, None, asyncio.Event()))
"""


@pytest.mark.parametrize("kind", ["waits", "blocks the loop"])
async def test_d01_a_handler_that_takes_longer_than_the_session_stays_the_owner(
    producer: KafkaProducer, place: Place, reading: Reading, kind: str
) -> None:
    took: list[int] = []

    async def long(records: Sequence[Record]) -> None:
        first = not took
        took.append(len(records))
        if first and kind == "waits":
            await asyncio.sleep(SESSION_SECONDS * 1.5)
        elif first:
            time.sleep(SESSION_SECONDS * 1.5)  # noqa: ASYNC251 - what a handler with a defect would do

    reading.handler = long
    await producer.send(numbered(place.topic, range(0, 40, PARTITIONS)))
    async with reading.at(place, Kept()):
        await until(lambda: bool(took), "the long batch has begun")
        await producer.send(numbered(place.topic, range(40, 80)))
        await reading.until_took([*range(0, 40, PARTITIONS), *range(40, 80)], 40)
        assert [state.phase for state in reading.states] == [Phase.ASSIGNED]
    assert len(reading.numbers()) == 50


async def test_d06_kafka_is_told_no_offset_beyond_what_is_durable(
    producer: KafkaProducer, place: Place, reading: Reading
) -> None:
    async def stuck_at_twelve(records: Sequence[Record]) -> None:
        if any(record.value == b"12" for record in records):
            raise Unavailable("E_UNAVAILABLE", "Postgres is away")

    reading.handler = stuck_at_twelve
    await producer.send(numbered(place.topic, range(8)))
    async with reading.at(place):
        await reading.until_took(range(8))
        await producer.send(numbered(place.topic, [8]))
        await reading.until_took([8])
        await producer.send(numbered(place.topic, [12]))
        await until(lambda: any(state.phase is Phase.RETRYING for state in reading.states), "12 is refused")
        await producer.send(numbered(place.topic, [16, 20, 1]))
    again = Reading()
    async with again.at(place):
        await again.until_took([12, 16, 20])
    assert again.numbers(0) == [12, 16, 20]


async def test_d10_a_process_that_is_killed_with_a_poll_in_its_hands_has_committed_nothing_of_it(
    producer: KafkaProducer, place: Place, reading: Reading
) -> None:
    await producer.send(numbered(place.topic, range(20)))
    killed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, place.bootstrap, place.group, place.topic),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert killed.stdout is not None
    async with asyncio.timeout(60):
        assert (await killed.stdout.readline()).startswith(b"took")
    # Not to wait for something: to let two rounds of commits pass, in which it must not tell of what it holds.
    await asyncio.sleep(2 * COMMIT_INTERVAL_SECONDS)
    killed.kill()
    await killed.wait()
    async with reading.at(place):
        await reading.until_took(range(20), 60)


async def test_d10_a_client_that_would_commit_by_itself_is_refused_at_the_start(
    place: Place, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = ConsumerThread.__mro__[1]
    made = driver._create_worker_consumer

    def careless(thread: Any, transport: Any) -> Any:
        client = made(thread, transport)
        client._enable_auto_commit = True
        return client

    monkeypatch.setattr(driver, "_create_worker_consumer", careless)
    with pytest.raises(Broken, match="commit by itself"):
        async with reading.at(place) as task:
            await asyncio.wait([task], timeout=30)


async def test_d03_a_stop_in_the_middle_of_a_rebalance_is_quick(
    producer: KafkaProducer, place: Place, reading: Reading
) -> None:
    """The first gives up its partitions while its handler waits for Postgres, and is told to stop in that moment."""

    async def away(_: Sequence[Record]) -> None:
        raise Unavailable("E_UNAVAILABLE", "Postgres is away")

    reading.handler = away
    other, loop = Reading(), asyncio.get_running_loop()
    told_at = 0.0

    def stop_when_revoked(state: ConsumerState) -> None:
        nonlocal told_at
        if state.phase is Phase.REVOKED and not told_at:
            told_at = loop.time()
            reading.stop.set()

    await producer.send(numbered(place.topic, range(8)))
    reading.on_state = stop_when_revoked
    async with reading.at(place, client="one") as first:
        await until(lambda: any(state.phase is Phase.RETRYING for state in reading.states), "the handler waits")
        async with other.at(place, client="two"):
            await asyncio.wait([first], timeout=60)
            assert first.done()
            assert told_at
            assert loop.time() - told_at < GOODBYE_SECONDS
            await other.until_reads(PARTITIONS, 60)
            await other.until_took(range(8))


async def test_d03_a_group_whose_members_left_in_the_same_moment_can_be_joined_again(
    place: Place, reading: Reading
) -> None:
    """The embedded broker keeps the one as leader that has left while the group was being shared out anew, and waits
    for its word for ever. Deleting the group helps; there is no other way to make it forget.
    """
    place.join_seconds = 8.0
    other = Reading()
    async with reading.at(place, client="one"):
        await reading.until_reads(PARTITIONS)
        async with other.at(place, client="two"):
            await other.until_reads(PARTITIONS // 2)
            await reading.until_reads(PARTITIONS // 2)
            other.stop.set()
            reading.stop.set()
    again = Reading()
    async with again.at(place):
        await again.until_reads(PARTITIONS, 60)


async def test_d03_a_stop_while_the_group_shares_out_nothing_is_quick(
    place: Place, reading: Reading, lives: list[FaustWorker]
) -> None:
    other, loop = Reading(), asyncio.get_running_loop()
    async with reading.at(place, client="one"):
        await reading.until_reads(PARTITIONS)
        async with other.at(place, client="two") as second:
            await until(lambda: len(lives) == 2, "the second joins")
            other.stop.set()
            began = loop.time()
            await asyncio.wait([second], timeout=60)
            assert loop.time() - began < GOODBYE_SECONDS
        await reading.until_reads(PARTITIONS, 60)


async def test_a_stop_is_quick_while_a_fetch_waits_to_be_tried_again(
    place: Place, reading: Reading, lives: list[FaustWorker]
) -> None:
    """Aiokafka takes the end of such a fetch for its own, and tells nobody that it has stopped."""

    def wait_to_try_again(inner: Any) -> None:
        inner._fetcher._pending_tasks.add(asyncio.ensure_future(asyncio.sleep(3600)))

    loop = asyncio.get_running_loop()
    async with reading.at(place) as task:
        await reading.until_reads(PARTITIONS)
        await in_its_thread(lives[0], wait_to_try_again)
        reading.stop.set()
        began = loop.time()
        await asyncio.wait([task], timeout=60)
    assert loop.time() - began < GOODBYE_SECONDS / 2
