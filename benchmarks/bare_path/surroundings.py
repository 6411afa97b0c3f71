"""What both bare roles need: a connection, a consumer and a producer, the statements, and JSON."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import psycopg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

EVENTS, COMMANDS, RUN_EVENTS = TOPICS = ("bare.events", "bare.commands", "bare.run-events")
DSN, BOOTSTRAP = "BARE_DSN", "BARE_BOOTSTRAP"  # in the environment of both roles
MOST_RECORDS = 2_000
FETCH_MS = 10
SESSION_MS = 6_000  # as the service's consumers have it; the embedded broker holds a join for half of it
IDLE_MS = 1_000

to_json = msgspec.json.Encoder().encode
from_json = msgspec.json.Decoder().decode


def statement(name: str) -> bytes:
    return (Path(__file__).with_name(f"{name}.sql")).read_bytes()


def text(value: object) -> str:
    return to_json(value).decode()


@asynccontextmanager
async def surroundings(topic: str) -> AsyncIterator[tuple[psycopg.AsyncConnection, AIOKafkaConsumer, AIOKafkaProducer]]:
    """Everything is open inside the block; offsets are committed by hand."""
    bootstrap = os.environ[BOOTSTRAP]
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"{topic}-group",
        fetch_max_wait_ms=FETCH_MS,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=SESSION_MS // 3,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    async with await psycopg.AsyncConnection.connect(os.environ[DSN], autocommit=True) as conn:
        await consumer.start()
        await producer.start()
        try:
            yield conn, consumer, producer
        finally:
            await consumer.stop()
            await producer.stop()
