"""A consumer that stays in its group and stops reading begins anew, and goes on where it was."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError
from structlog.testing import capture_logs

from processors.adapters.kafka.faust_worker import FaustWorker
from processors.adapters.kafka.producer import KafkaProducer
from processors.ports.streams import Phase, Record
from schemas.errors import Unavailable
from tests.integration.kafka.conftest import PARTITIONS, Kept, Place, Reading, in_its_thread, numbered
from tests.support.waiting import until


def pause_the_first_partition(inner: Any) -> None:
    inner.pause(TopicPartition(next(iter(inner.subscription())), 0))


class Unanswered(set[int]):
    """Brokers that will not answer a fetch any more."""

    def discard(self, _: object) -> None:
        return


def lose_a_fetch(inner: Any) -> None:
    """An answer that never comes: the fetcher sends nothing more to that broker."""
    inner._fetcher._in_flight = Unanswered(broker.nodeId for broker in inner._client.cluster.brokers())


# Where a fetch is lost, it depends on what was on its way which partitions are stuck.
@pytest.mark.parametrize(
    ("harm", "surely_stuck"),
    [(pause_the_first_partition, {0}), (lose_a_fetch, set())],
    ids=["pause_the_first_partition", "lose_a_fetch"],
)
async def test_d08_a_consumer_that_stops_reading_while_there_are_records_begins_anew(
    harm: Callable[[Any], None],
    surely_stuck: set[int],
    producer: KafkaProducer,
    place: Place,
    reading: Reading,
    lives: list[FaustWorker],
) -> None:
    place.stall_seconds = 3.0
    kept = Kept()
    reading.handler = kept.keep
    await producer.send(numbered(place.topic, range(40)))
    with capture_logs() as logs:
        async with reading.at(place, kept):
            await reading.until_took(range(40))
            await in_its_thread(lives[0], harm)
            # A fetch that was on its way when the harm was done is still answered: what comes behind it is stuck.
            await producer.send(numbered(place.topic, range(40, 80)))
            await until(lambda: max(reading.numbers()) >= 40, "that answer, or the next life")
            await producer.send(numbered(place.topic, range(80, 400)))
            await reading.until_took(range(400), 40)
            assert reading.measures.value("consumer_restarts_total", place.topic) == 1
            await until(lambda: lag_of(reading, place) == [0] * PARTITIONS, "no lag is told")
    assert sorted(reading.numbers()) == list(range(400))
    told = [line for line in logs if line["event"] == "consumer_stalled"]
    assert told
    assert {line["partition"] for line in told} >= surely_stuck
    assert all(line["position"] < line["end"] for line in told)
    assert all(line["seconds"] >= place.stall_seconds for line in told)
    assert lag_of(reading, place) == []


def lag_of(reading: Reading, place: Place) -> list[float]:
    return [value for name, labels, value in reading.measures if name == "consumer_lag" and labels[0] == place.topic]


async def test_d08_waiting_for_postgres_is_no_stall(
    producer: KafkaProducer, place: Place, reading: Reading, lives: list[FaustWorker]
) -> None:
    place.stall_seconds = 0.6
    tries = 0

    async def away(_: Sequence[Record]) -> None:
        nonlocal tries
        tries += 1
        if tries < 8:
            raise Unavailable("E_UNAVAILABLE", "Postgres is away")

    reading.handler = away
    await producer.send(numbered(place.topic, range(20)))
    async with reading.at(place, Kept()):
        await until(lambda: any(state.phase is Phase.RETRYING for state in reading.states), "a first refusal")
        await producer.send(numbered(place.topic, range(20, 40)))
        await reading.until_took(range(40), 40)
    assert len(lives) == 1
    assert reading.measures.value("consumer_restarts_total", place.topic) == 0


async def test_d02_a_commit_that_fails_in_a_rebalance_stops_no_partition(
    producer: KafkaProducer, place: Place, reading: Reading, lives: list[FaustWorker]
) -> None:
    refused = 0

    def refuse_commits(inner: Any) -> None:
        async def refuse(_: Any) -> None:
            nonlocal refused
            refused += 1
            raise CommitFailedError("the group has rebalanced")

        inner.commit = refuse

    other = Reading()
    async with reading.at(place, Kept(), client="one"):
        await reading.until_reads(PARTITIONS)
        await in_its_thread(lives[0], refuse_commits)
        await producer.send(numbered(place.topic, range(40)))
        await reading.until_took(range(40))
        async with other.at(place, Kept(dict.fromkeys(range(PARTITIONS), 10)), client="two"):
            await other.until_reads(PARTITIONS // 2)
            assert refused > 0
            await producer.send(numbered(place.topic, range(40, 80)))
            await until(lambda: {*reading.numbers(), *other.numbers()} >= set(range(80)), "every partition is read")
    assert reading.measures.value("consumer_restarts_total", place.topic) == 0
