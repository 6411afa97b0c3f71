"""Topics through librdkafka's admin client: made when missing, told by id and partition count.

A topic's id is new when the topic was made again, which is how a broker that lost its data is noticed.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from processors.adapters.kafka import driver_logs
from schemas.errors import Refused, Unavailable
from topology.topic_plan import Real
from topology.topics import TopicSpec

_driver_log = logging.getLogger("a44.kafka.admin")
driver_logs.limit("a44.kafka.admin")

_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.05
# What passes by itself, such as while a topic is being made again. librdkafka tells that of transactions only.
_PASSING: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT, KafkaError.BROKER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_CONTROLLER, KafkaError.KAFKA_STORAGE_ERROR, KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)  # fmt: skip


class KafkaAdmin:
    """Implements `processors.ports.streams.Admin`."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "reconnect.backoff.max.ms": 1_000,
            "socket.timeout.ms": int(_SECONDS * 1000),
        }
        self._client = AdminClient(settings, logger=_driver_log)

    async def ensure_topics(self, specs: Sequence[TopicSpec], replication: int = 1) -> list[str]:
        """Make the topics that are missing. Raises Unavailable, or Refused where the broker will not have one."""
        asked = self._client.create_topics(
            [
                NewTopic(
                    spec.name, num_partitions=spec.partitions, replication_factor=replication, config=spec.settings()
                )
                for spec in specs
            ],
            request_timeout=_SECONDS,
        )
        made = []
        for name, answer in asked.items():
            error = await _error_of(answer)
            if error is None:
                made.append(name)
            elif error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translated(error, f"make the topic {name}")
        await self._wait_until_told(made)
        return made

    async def real(self, prefix: str) -> dict[str, Real]:
        """The topics whose names begin with this, with their settings where the broker tells them."""
        try:
            told = await asyncio.to_thread(self._client.list_topics, timeout=_SECONDS)
        except KafkaException as exc:
            raise translated(exc.args[0], "list topics") from exc
        counts = {name: len(topic.partitions) for name, topic in told.topics.items() if name.startswith(prefix)}
        settings = await self._settings(list(counts))
        return {name: Real(count, settings.get(name, {})) for name, count in counts.items()}

    async def _settings(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        if not topics:
            return {}
        asked = self._client.describe_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics], request_timeout=_SECONDS
        )
        found = {}
        for resource, answer in asked.items():
            error = await _error_of(answer)
            if error is not None:
                raise translated(error, f"tell the settings of {resource.name}")
            found[resource.name] = {name: str(entry.value) for name, entry in answer.result().items()}
        return found

    async def set_topic(self, name: str, settings: Mapping[str, str]) -> None:
        """Change these settings and no others. Raises Unavailable, Refused."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()
        ]
        wanted = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        for answer in self._client.incremental_alter_configs([wanted], request_timeout=_SECONDS).values():
            error = await _error_of(answer)
            if error is not None:
                raise translated(error, f"change the settings of {name}")

    async def add_partitions(self, name: str, count: int) -> None:
        """Let a topic have so many. Raises Unavailable, Refused."""
        asked = self._client.create_partitions([NewPartitions(name, count)], request_timeout=_SECONDS)
        error = await _error_of(asked[name])
        if error is not None:
            raise translated(error, f"let {name} have {count} partitions")
        await self._wait_for_partitions(name, count)

    async def _wait_for_partitions(self, name: str, count: int) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                while True:
                    if (await self.partition_counts([name])).get(name, 0) >= count:
                        return
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError as exc:
            raise Unavailable("E_UNAVAILABLE", f"Kafka does not show the new partitions of {name}") from exc

    async def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        return {name: str(found.topic_id) for name, found in (await self._describe(topics)).items()}

    async def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        return {name: len(found.partitions) for name, found in (await self._describe(topics)).items()}

    async def end_offsets(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """The offsets that the next records will get. Raises Unavailable."""
        if not partitions:
            return {}
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
        try:
            answers = self._client.list_offsets(asked, request_timeout=_SECONDS)
        except KafkaException as exc:
            raise translated(exc.args[0], f"tell the ends of {topic}") from exc
        found = {}
        for place, answer in answers.items():
            error = await _error_of(answer)
            if error is not None:
                raise translated(error, f"tell the ends of {topic}")
            found[place.partition] = int(answer.result().offset)
        return found

    async def forget_group(self, group: str) -> None:
        """Have a group deleted that has no members. One that has some stays, and so does one nobody answers for."""
        error = await _error_of(self._client.delete_consumer_groups([group], request_timeout=_SECONDS)[group])
        _driver_log.info("group %s: %s", group, "deleted" if error is None else error.str())

    async def _wait_until_told(self, topics: Sequence[str]) -> None:
        """Apache Kafka answers before its metadata tells of a new topic."""
        try:
            async with asyncio.timeout(_SECONDS):
                while True:
                    if len(await self._describe(topics)) == len(topics):
                        return
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError as exc:
            raise Unavailable(
                "E_UNAVAILABLE", f"Kafka made topics but does not show them: {', '.join(topics)}"
            ) from exc

    async def _describe(self, topics: Sequence[str]) -> dict[str, Any]:
        if not topics:
            return {}
        try:
            asked = self._client.describe_topics(TopicCollection(list(topics)), request_timeout=_SECONDS)
        except KafkaException as exc:
            raise translated(exc.args[0], "describe topics") from exc
        found = {}
        for name, answer in asked.items():
            error = await _error_of(answer)
            if error is None:
                found[name] = answer.result()
            elif error.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE):
                raise translated(error, f"describe the topic {name}")
        return found


async def _error_of(answer: "Future[Any]") -> KafkaError | None:
    try:
        await asyncio.wrap_future(answer)
    except KafkaException as exc:
        error: KafkaError = exc.args[0]
        return error
    return None


def translated(error: KafkaError, what: str) -> Exception:
    if error.name() == "_UNSUPPORTED_FEATURE":
        return Refused("E_CONFIG", f"this broker cannot {what}, as the embedded one cannot; Apache Kafka can")
    if error.code() in _PASSING or error.code() < 0:  # below zero: librdkafka's own, the broker said nothing
        return Unavailable("E_UNAVAILABLE", f"Kafka does not answer ({what}): {error.str()}")
    return Refused("E_CONFIG", f"Kafka refuses to {what}: {error.str()}")
