"""A migrated database with a topic, rows for its outbox, relays to run, and a look at what was published."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, LiteralString
from urllib.parse import urlsplit, urlunsplit

import confluent_kafka
import confluent_kafka.admin
import psycopg
import pytest
import pytest_asyncio
from psycopg import sql

from processors.adapters.kafka.admin import KafkaAdmin
from processors.adapters.kafka.producer import KafkaProducer
from processors.adapters.postgres.migrations import migrate
from processors.adapters.postgres.relay_store import open_relay_store
from processors.ports.measures import Measures
from processors.ports.relay import RelayStore
from processors.ports.streams import Delivery, Outgoing, Producer
from processors.relay.relay import run_relay
from schemas.errors import Refused, Unavailable
from tests.support.waiting import until
from topology.topics import TopicSpec

PARTITIONS = 3
LEASE = 2.0
QUIET_SECONDS = 0.25


@dataclass(frozen=True)
class Published:
    partition: int
    seq: int
    key: str
    value: str
    headers: dict[str, str]


class Outbox:
    """A writer's connection."""

    def __init__(self, conn: psycopg.AsyncConnection, topic: str) -> None:
        self.conn = conn
        self.topic = topic

    async def put(self, *values: str, key: str = "k", headers: dict[str, str] | None = None) -> None:
        for value in values:
            await self.conn.execute(
                "insert into automation.outbox (topic, partition_key, headers, value) values (%s, %s, %s, %s)",
                (self.topic, key, None if headers is None else json.dumps(headers), value.encode()),
            )

    async def put_nine_days_ago(self, value: str) -> None:
        await self.conn.execute(
            "select automation.attach_partition('outbox', 'old', (current_date - 20)::text, (current_date - 8)::text)"
        )
        await self.conn.execute(
            "insert into automation.outbox (day, topic, partition_key, value) values (current_date - 9, %s, 'k', %s)",
            (self.topic, value.encode()),
        )

    async def wake(self) -> None:
        await self.conn.execute("notify a44_outbox")

    async def ingest_has(self, partition: int, seq: int) -> None:
        """As if ingest had read this topic up to a number."""
        await self.conn.execute(
            "insert into automation.ingest_progress (topic, partition, topic_id, next_offset, seq, seen)"
            " values (%s, %s, 'read', 1, %s, %s) on conflict (topic, partition) do update set seq = excluded.seq",
            (self.topic, partition, seq, seq),
        )

    async def ask_for(self, partition: int, seq: int) -> None:
        await self.conn.execute(
            "insert into automation.relay_requests (topic, partition, seq) values (%s, %s, %s)",
            (self.topic, partition, seq),
        )

    async def value(self, query: LiteralString, *params: object) -> Any:
        row = await (await self.conn.execute(query, params or None)).fetchone()
        assert row is not None
        return row[0]

    async def is_answered(self) -> bool:
        return bool(await self.value("select count(*) = 0 from automation.relay_requests"))

    async def is_kept(self) -> bool:
        """Whether the cursor is behind all rows: nothing of them goes out again."""
        query = "select (cursor_xid, cursor_id) = (select max(xid), max(id) from automation.outbox)"
        return bool(await self.value(f"{query} from automation.relay_shards"))

    async def has_checkpoint(self, seq: int) -> bool:
        query = "select exists (select from automation.relay_checkpoints where topic = %s and seq = %s)"
        return bool(await self.value(query, self.topic, seq))


class Wrapped:
    """A producer around the real one, which the test may make fail."""

    def __init__(self) -> None:
        self.real: Producer | None = None

    def wrap(self, real: Producer) -> Producer:
        self.real = real
        return self

    async def send(self, batch: Sequence[Outgoing]) -> list[Delivery | Unavailable | Refused]:
        assert self.real is not None
        return await self.real.send(batch)

    async def ready(self, topics: Collection[str]) -> None:
        """There is nothing to get to know."""

    def send_unawaited(self, batch: Sequence[Outgoing]) -> None:
        raise AssertionError("the relay awaits all its reports")

    async def aclose(self) -> None:
        raise AssertionError("the relay does not own its producer")


class stranger:  # noqa: N801 - reads as a function
    """Address of a role that is no member of the writing one."""

    def __init__(self, conn: psycopg.AsyncConnection, dsn: str) -> None:
        self._conn = conn
        self._dsn = dsn

    async def __aenter__(self) -> str:
        self._name = f"stranger_{id(self):x}"
        name = sql.Identifier(self._name)
        await self._conn.execute(sql.SQL("create role {} login password 'made-up'").format(name))
        await self._conn.execute(sql.SQL("grant usage on schema automation to {}").format(name))
        await self._conn.execute(sql.SQL("grant select, update on all tables in schema automation to {}").format(name))
        parts = urlsplit(self._dsn)
        return urlunsplit(parts._replace(netloc=f"{self._name}:made-up@{parts.hostname}:{parts.port}"))

    async def __aexit__(self, *_: object) -> None:
        name = sql.Identifier(self._name)
        await self._conn.execute(sql.SQL("drop owned by {}").format(name))
        await self._conn.execute(sql.SQL("drop role {}").format(name))


class Stage:
    """Everything a test of the relay needs."""

    def __init__(self, dsn: str, bootstrap: str, topic: str) -> None:
        self.dsn = dsn
        self.bootstrap = bootstrap
        self.topic = topic
        self.spec = TopicSpec(topic, PARTITIONS, 86_400_000)
        self.specs = [self.spec]
        self.admin = KafkaAdmin(bootstrap, "relay-test-admin")
        self.measures = Measures()
        self.lease = LEASE
        self._consumer: confluent_kafka.Consumer | None = None
        self._seen: list[Published] = []

    @asynccontextmanager
    async def writer(self, dsn: str | None = None) -> AsyncIterator[Outbox]:
        async with await psycopg.AsyncConnection.connect(dsn or self.dsn, autocommit=True) as conn:
            yield Outbox(conn, self.topic)

    @asynccontextmanager
    async def relay(
        self,
        owner: str = "one",
        wrap: Callable[[Producer], Producer] = lambda real: real,
        wrap_store: Callable[[RelayStore], RelayStore] = lambda real: real,
    ) -> AsyncIterator[asyncio.Task[None]]:
        """A running relay; leaving the block stops it properly unless the test cancelled it."""
        producer = KafkaProducer(self.bootstrap, f"relay-{owner}")
        stop = asyncio.Event()
        async with open_relay_store(self.dsn, lease=self.lease) as store:
            task = asyncio.create_task(
                run_relay(
                    wrap_store(store),
                    wrap(producer),
                    self.admin,
                    owner,
                    stop,
                    specs=self.specs,
                    measures=self.measures,
                ),
                name=owner,
            )
            try:
                yield task
            finally:
                stop.set()
                await asyncio.wait([task])
                await producer.aclose()
        if not task.cancelled():
            task.result()

    async def published(self) -> list[Published]:
        """Everything so far, by partition and offset; asks until nothing more comes for a moment."""
        await asyncio.to_thread(self._read_on)
        return sorted(self._seen, key=lambda record: record.partition)

    async def until_published(self, *values: str, seconds: float = 20.0) -> list[Published]:
        """All records once these values, in any order, are among them."""
        found: list[Published] = []

        async def there() -> bool:
            found[:] = await self.published()
            return set(values) <= {record.value for record in found}

        await until(there, f"{values} published", seconds)
        return found

    async def lose_topic(self) -> None:
        """As a broker without its data comes back; readers of the old topic are of no use any more."""
        client = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.bootstrap})
        await asyncio.wrap_future(client.delete_topics([self.topic])[self.topic])
        self.begin_anew()

    async def add_partitions(self, count: int) -> None:
        client = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.bootstrap})
        grown = confluent_kafka.admin.NewPartitions(self.topic, count)
        await asyncio.wrap_future(client.create_partitions([grown])[self.topic])

    def begin_anew(self) -> None:
        """Look at the topic as if for the first time."""
        self.close()
        self._consumer = None
        self._seen.clear()

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def _read_on(self) -> None:
        if self._consumer is None:
            self._consumer = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "group.id": "nobody",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 10,
                    "topic.metadata.refresh.interval.ms": 100,
                }
            )
            places = [confluent_kafka.TopicPartition(self.topic, n, 0) for n in range(PARTITIONS)]
            self._consumer.assign(places)
        while (message := self._consumer.poll(QUIET_SECONDS)) is not None:
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART, message.error()
                continue
            headers = {name: value.decode() for name, value in message.headers() or []}
            seq = int(headers.pop("a44-seq"))
            place = message.partition()
            self._seen.append(Published(place, seq, message.key().decode(), message.value().decode(), headers))


@pytest_asyncio.fixture
async def stage(database: str, kafka_bootstrap: str, topic_prefix: str) -> AsyncIterator[Stage]:
    await migrate(database)
    made = Stage(database, kafka_bootstrap, f"{topic_prefix}events")
    await made.admin.ensure_topics([made.spec])
    yield made
    made.close()


@pytest.fixture(autouse=True)
def short_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standing by is asked about more often, so that takeovers are quick to see."""
    monkeypatch.setattr("processors.relay.relay.POLL_SECONDS", 0.5)
