"""The broker loses everything, or a topic is made again, under load: no accepted event and no run is lost or doubled,
and nobody has to do anything about it.
"""

import asyncio
import time

import confluent_kafka.admin
import pytest

from tests.acceptance.broker_lost.conftest import Load
from tests.support.waiting import until

ENDED_SECONDS = 150.0  # generous: recovery is printed, not asserted
TOPICS = ("a44.events.v1", "a44.commands.v1", "a44.run-events.v1")


async def ended_after(load: Load, began: float, what: str) -> None:
    await until(load.all_ended, "everything has ended", ENDED_SECONDS)
    print(f"{what}: everything had ended {time.monotonic() - began:.1f} s after it")  # noqa: T201


@pytest.mark.timeout(400)
async def test_the_whole_broker_is_lost_with_its_data_under_load(load: Load) -> None:
    direct = range(40)
    await asyncio.to_thread(load.produce, direct)
    await until(load.all_ended, "the direct records are runs that have ended", 90)
    broker = load.stack.servers.broker
    async with load.going_on():
        await load.accepted(30)
        began = time.monotonic()
        await broker.kill_immediately()
        await load.accepted(20)
        await broker.start_empty()
        await load.accepted(30)
    await ended_after(load, began, "broker lost with its data")
    await asyncio.to_thread(load.produce, direct)  # ingest had committed them: they stay one run each
    fresh = range(40, 60)
    await asyncio.to_thread(load.produce, fresh)
    await until(load.all_ended, "fresh records end, too", 90)
    await load.check()
    await load.until_announced()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("topic", TOPICS)
async def test_a_topic_is_deleted_and_made_again_under_load(load: Load, topic: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": load.stack.kafka_bootstrap})
    async with load.going_on():
        await load.accepted(30)
        began = time.monotonic()
        await asyncio.wrap_future(admin.delete_topics([topic])[topic])
        await load.accepted(30)
    await ended_after(load, began, f"{topic} deleted")
    await load.check()
    await load.until_announced()


@pytest.mark.timeout(400)
async def test_the_broker_is_lost_while_relay_and_ingest_are_away(load: Load) -> None:
    """Nobody saw the loss: it is known by the topics that were published to, and by the relay's numbers."""
    relay, ingest = load.stack.processes["relay"], load.stack.processes["ingest"]
    broker = load.stack.servers.broker
    async with load.going_on():
        await load.accepted(20)
        await ingest.kill()
        await load.accepted(20)
        await relay.kill()
        await broker.kill_immediately()
        began = time.monotonic()
        await broker.start_empty()
        await load.accepted(20)
        await asyncio.gather(relay.start(), ingest.start())
        await load.accepted(10)
    await ended_after(load, began, "broker lost while relay and ingest were away")
    await load.check()
    await load.until_announced()
