"""What can be told of the brokers from outside, for `a44 doctor`: one question for their metadata, nothing is made."""

import asyncio
import logging
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from processors.adapters.kafka import driver_logs
from schemas.errors import Unavailable

_driver_log = logging.getLogger("a44.kafka.checkup")
driver_logs.limit("a44.kafka.checkup")


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    brokers: int
    topics: frozenset[str]


async def look_at_brokers(bootstrap: str, seconds: float) -> BrokerFacts:
    """Raises Unavailable where none answers within so many seconds."""
    client = AdminClient({"bootstrap.servers": bootstrap, "client.id": "a44-doctor"}, logger=_driver_log)
    try:
        found = await asyncio.to_thread(client.list_topics, timeout=seconds)
    except KafkaException as exc:
        raise Unavailable("E_UNAVAILABLE", f"no broker at {bootstrap} answers: {exc.args[0].str()}") from exc
    return BrokerFacts(len(found.brokers), frozenset(found.topics))
