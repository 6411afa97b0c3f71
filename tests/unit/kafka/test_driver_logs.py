"""What a Kafka client says a thousand times is said once in a while, with the count; nothing distinct is lost."""

import logging
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from processors.adapters.kafka import admin, consumer_thread, driver_logs, producer
from processors.adapters.kafka.driver_logs import MOST_KINDS, QUIET_SECONDS, Repetitions


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(clock: Clock) -> Iterator[logging.Logger]:
    logger = logging.getLogger("test.kafka.client")
    limited = Repetitions(clock)
    logger.addFilter(limited)
    yield logger
    logger.removeFilter(limited)


def test_the_same_with_other_numbers_is_said_at_once_and_then_once_in_a_while_with_its_count(
    client: logging.Logger, clock: Clock
) -> None:
    with capture_logs() as logs:
        for port in range(1_000):
            client.error("Unable to connect to node %s: port %s", 1, port)
        clock.now += QUIET_SECONDS
        client.error("Unable to connect to node %s: port %s", 1, 7)
    assert [(line["said"], line["repeated"]) for line in logs] == [
        ("Unable to connect to node 1: port 0", 0),
        ("Unable to connect to node 1: port 7", 999),
    ]
    assert {line["client"] for line in logs} == {"test.kafka.client"}


def test_distinct_things_are_each_said(client: logging.Logger) -> None:
    with capture_logs() as logs:
        client.error("the coordinator is dead")
        client.warning("the fetch failed")
        client.error("the coordinator is dead")
    told = [(line["log_level"], line["said"]) for line in logs]
    assert told == [("error", "the coordinator is dead"), ("warning", "the fetch failed")]


def test_an_exception_is_said_with_its_trace(client: logging.Logger) -> None:
    with capture_logs() as logs:
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError:
            client.exception("unexpected")
    assert logs[0]["exc_info"][0] is ZeroDivisionError


def test_who_says_ever_new_things_takes_no_memory(client: logging.Logger) -> None:
    limited = next(one for one in client.filters if isinstance(one, Repetitions))
    with capture_logs():
        for number in range(3 * MOST_KINDS):
            client.error("%s", "x" * number)
    assert len(limited._said) <= MOST_KINDS


def test_what_is_not_a_warning_passes_as_it_is(client: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=client.name)
    client.info("started")
    assert caplog.messages == ["started"]


@pytest.mark.parametrize(
    "name",
    [
        "aiokafka",
        "aiokafka.conn",
        "aiokafka.consumer.consumer",
        "aiokafka.consumer.fetcher",
        "aiokafka.consumer.group_coordinator",
        "faust.transport.drivers.aiokafka",
        admin._driver_log.name,
        producer._driver_log.name,
    ],
)
def test_the_loggers_of_the_clients_are_limited(name: str) -> None:
    assert consumer_thread is not None  # once it is imported
    assert driver_logs._repetitions in logging.getLogger(name).filters
