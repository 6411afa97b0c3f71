"""The shared fixtures give what they promise."""

import os

import psycopg
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.databases import fresh_database
from tests.support.servers import wished_broker


async def test_the_database_fixture_gives_an_empty_database_of_its_own(database: str, postgres_dsn: str) -> None:
    assert database != postgres_dsn
    async with await psycopg.AsyncConnection.connect(database) as connection:
        cursor = await connection.execute("select count(*) from pg_tables where schemaname = 'public'")
        assert await cursor.fetchone() == (0,)
        await connection.execute("create table only_here (id bigint)")


async def test_a_database_can_be_copied_from_a_template(postgres_dsn: str) -> None:
    async with fresh_database(postgres_dsn) as template:
        async with await psycopg.AsyncConnection.connect(template) as connection:
            await connection.execute("create table from_template (id bigint)")
        async with (
            fresh_database(postgres_dsn, template.rpartition("/")[2]) as copy,
            await psycopg.AsyncConnection.connect(copy) as connection,
        ):
            cursor = await connection.execute("select count(*) from from_template")
            assert await cursor.fetchone() == (0,)


async def test_the_migrated_database_has_the_schema(migrated_database: str) -> None:
    async with await psycopg.AsyncConnection.connect(migrated_database) as connection:
        cursor = await connection.execute("select count(*) from pg_tables where schemaname = 'automation'")
        row = await cursor.fetchone()
        assert row is not None
        assert row[0] > 0


def test_the_broker_takes_and_gives_a_record(kafka_bootstrap: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}greeting"
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic].result(20)

    producer = Producer({"bootstrap.servers": kafka_bootstrap, "enable.idempotence": True})
    producer.produce(topic, value=b"hello", key=b"k")
    assert producer.flush(20) == 0

    consumer = Consumer(
        {
            "bootstrap.servers": kafka_bootstrap,
            "group.id": f"{topic_prefix}readers",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        assert message.value() == b"hello"
    finally:
        consumer.close()


def test_an_unknown_wish_for_a_broker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "A44_TEST_BROKER", "tape")
    with pytest.raises(ValueError, match="'tape'; expected one of embedded, apache, containers"):
        wished_broker()
