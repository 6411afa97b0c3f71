"""A running stack in which a role again with a crash point armed, dies there, and is started plainly.

It does not die before its mark is made, so a test chooses the moment. Everything that a test makes carries its own key.
"""

import asyncio
import contextlib
import json
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, LiteralString, TypeVar

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition

from ops.client import Answer, Client
from ops.local import LocalStack
from processors.adapters.objects.storage import open_storage
from schemas.envelope import Envelope, encode_envelope, referring
from schemas.errors import Unavailable
from schemas.stored_bodies import too_large_to_travel
from tests.support.scraping import sample, scrape
from tests.support.waiting import until
from topology.publication import collect

EVENTS, RUN_EVENTS = "a44.events.v1", "a44.run-events.v1"
PATIENCE = 90.0
T = TypeVar("T")

FLOWS = """
import pathlib
import time

from anthares44.automation import step, workflow

FOLDER = pathlib.Path({folder!r})


def note(word, key, of_step):
    with (FOLDER / "ledger").open("a") as file:
        file.write(f"{{key}} {{word}} {{of_step}}\\n")


def held(key, of_step):
    note("held", key, of_step)
    deadline = time.monotonic() + 60
    while not (FOLDER / f"{{key}}.go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError("never let go")
        time.sleep(0.01)


@workflow("pair", version=1, trigger={{"event": "pair.asked"}})
async def pair(ctx, input):
    key = input["key"]
    await step.run("first", timeout="20s", fn=lambda: note("first", key, ctx.idempotency_key))
    await step.run("second", timeout="20s", fn=lambda: note("second", key, ctx.idempotency_key))
    return key


@workflow("held", version=1)
async def wait(ctx, input):
    key = input["key"]
    await step.run("held", timeout="60s", fn=lambda: held(key, ctx.idempotency_key))
    await step.run("after", timeout="20s", fn=lambda: note("after", key, ctx.idempotency_key))
    return key


@workflow("sleeper", version=1)
async def sleeper(ctx, input):
    key = input["key"]
    await step.sleep("nap", "1s")
    await step.run("awake", timeout="20s", fn=lambda: note("awake", key, ctx.idempotency_key))
    return key
"""


def mark(folder: Path, name: str) -> Path:
    """Where the process of this name looks for the point at which it shall die."""
    return folder / f"{name}.mark"


class Site:
    """`folder` is where steps write; its flows are published by whoever makes the site."""

    def __init__(self, stack: LocalStack, folder: Path) -> None:
        self.stack = stack
        self.folder = folder
        self._starts: dict[str, asyncio.Task[Any]] = {}

    # deaths

    def arm(self, name: str, point: str) -> None:
        """From now on the process dies when it comes to this point."""
        drawn = self.folder / f"{name}.drawn"
        drawn.write_text(point)
        drawn.rename(mark(self.folder, name))

    async def death(self, name: str) -> None:
        """Wait until the process has died where it was told to, and by nothing else."""
        async with asyncio.timeout(PATIENCE):
            how = await self.stack.processes[name].ended()
        assert f"exit status {128 + signal.SIGKILL}:" in how, how
        assert not mark(self.folder, name).exists()
        await self.stop(name)

    async def start(self, name: str) -> None:
        """It runs; whether it is ready is not waited for: an executor works before its group lets it in."""
        process = self.stack.processes[name]
        self._starts[name] = asyncio.create_task(process.start())
        await until(lambda: process.is_running or self._starts[name].done(), f"{name} runs", PATIENCE)

    async def ready(self, name: str) -> None:
        await self._starts[name]

    async def all_ready(self) -> None:
        for starting in list(self._starts.values()):
            await starting

    async def stop(self, name: str) -> None:
        await self.stack.processes[name].stop()
        if name in self._starts:
            with contextlib.suppress(Unavailable):  # it ended before it was ready
                await self._starts.pop(name)

    async def aclose(self) -> None:
        for name in list(self._starts):
            await self.stop(name)

    # what is asked of the service

    def _asked(self, ask: Callable[[Client], T]) -> Awaitable[T]:
        def call() -> T:
            with closing(Client(self.stack.url, self.stack.token)) as client:
                return ask(client)

        return asyncio.to_thread(call)

    async def run(self, workflow: str, key: str) -> Answer:
        return await self._asked(lambda client: client.run(workflow, json.dumps({"key": key}), key))

    async def send(self, key: str) -> Answer:
        """An event of the workflow `pair`, through the gateway."""
        body = json.dumps({"type": "pair.asked", "data": {"key": key}, "idempotency_key": key}).encode()
        return await self._asked(lambda client: client._call("POST", "/v1/automation/events", body))

    async def show(self, run_id: str) -> dict[str, Any]:
        document: dict[str, Any] = (await self._asked(lambda client: client.show(run_id))).document
        return document

    async def publish(self) -> None:
        await self._asked(lambda client: client.publish(collect([self.folder / "flows"])))

    async def succeeded(self, run_id: str) -> dict[str, Any]:
        """The run's document when it has ended well."""
        document: dict[str, Any] = {}

        async def ended() -> bool:
            nonlocal document
            document = await self.show(run_id)
            return document["state"] not in {"accepted", "pending", "granted", "running", "sleeping", "retrying"}

        await until(ended, f"{run_id} ends", PATIENCE)
        assert document["state"] == "succeeded", document
        return document

    def produce(self, key: str) -> None:
        """An event straight to Kafka, of the workflow `pair`."""
        envelope = {
            "id": f"evt_{key}",
            "type": "pair.asked",
            "idempotency_key": key,
            "partition_key": key,
            "occurred_at": "2026-11-29T00:00:00Z",
            "attempt": 1,
            "project_id": "dev",
            "data": {"key": key},
        }
        self.produce_value(key, json.dumps(envelope).encode())

    def produce_value(self, key: str, value: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.stack.kafka_bootstrap, "enable.idempotence": True})
        producer.produce(EVENTS, key=key, value=value)
        assert producer.flush(20) == 0

    async def large(self, key: str) -> bytes:
        """An event of the workflow `pair` as a producer would write it, its data in the storage of this stack."""
        body = too_large_to_travel("dev", json.dumps({"key": key, "pad": "x" * 300_000}), datetime.now(UTC))
        assert body is not None
        await open_storage(f"file://{self.bodies}").put(body)
        event = Envelope(
            id=f"evt_{key}", type="pair.asked", idempotency_key=key, partition_key=key,
            occurred_at="2026-11-29T00:00:00Z", data="null", project_id="dev",
        )  # fmt: skip
        return encode_envelope(referring(event, body))

    @contextlib.contextmanager
    def without_storage(self) -> Iterator[None]:
        away = self.bodies.with_name("away")
        self.bodies.rename(away)
        try:
            yield
        finally:
            away.rename(self.bodies)

    @property
    def bodies(self) -> Path:
        return self.folder / "bodies"

    def let_go(self, key: str) -> None:
        """The step `held` of this run may end."""
        (self.folder / f"{key}.go").touch()

    # what became of it

    def effects(self, key: str) -> list[str]:
        """What the steps of a run did, in order."""
        lines = [line.split() for line in (self.folder / "ledger").read_text().splitlines()]
        return [word for one, word, _ in lines if one == key]

    def keys_of_steps(self, key: str, word: str) -> set[str]:
        """The idempotency keys under which a step did it: one, however often it ran."""
        lines = [line.split() for line in (self.folder / "ledger").read_text().splitlines()]
        return {of_step for one, done, of_step in lines if (one, done) == (key, word)}

    async def ask(self, sql: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(self.stack.log_dsn, autocommit=True) as conn:
            return await (await conn.execute(sql, values)).fetchall()

    async def runs_of(self, key: str) -> list[str]:
        rows = await self.ask("select run_id from automation.runs where input::jsonb ->> 'key' = %s", key)
        return [run_id for (run_id,) in rows]

    async def runs_when_made(self, key: str) -> list[str]:
        """The runs of a key, as soon as there is one."""
        await until(lambda: self._is_made(key), f"{key} becomes a run", PATIENCE)
        return await self.runs_of(key)

    async def _is_made(self, key: str) -> bool:
        return bool(await self.runs_of(key))

    async def ends_told(self, run_id: str) -> int:
        """How many run events of this run were committed."""
        told = await self.ask(
            "select count(*) from automation.outbox where topic = %s and partition_key = %s", RUN_EVENTS, run_id
        )
        return int(told[0][0])

    async def measure(self, name: str, measure: str, **labels: str) -> float:
        samples = await scrape(self.stack.processes[name].told["metrics"])
        return samples.get(sample(measure, **labels), 0.0)

    async def records(self, topic: str) -> list[tuple[bytes, bytes]]:
        """Key and number (the relay's header) of every record in a topic, by partition and offset."""
        return await asyncio.to_thread(_records, self.stack.kafka_bootstrap, topic)


def attempts(document: dict[str, Any]) -> list[tuple[str, int, str]]:
    """Step, number, outcome of each attempt, in order of commit."""
    return [(row["step_id"], row["attempt"], row["status"]) for row in document["attempts"] if row["kind"] == "step"]


def _records(bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer(settings)
    found = {}
    try:
        places = [
            TopicPartition(topic, one, 0) for one in consumer.list_topics(topic, timeout=20).topics[topic].partitions
        ]
        left = {one.partition: consumer.get_watermark_offsets(one, timeout=20)[1] for one in places}
        consumer.assign(places)
        while any(left.values()):
            record = consumer.poll(20)
            assert record is not None, f"{topic} was silent; still to be read: {left}"
            assert record.error() is None, record.error()
            place = record.partition(), record.offset()
            found[place] = record.key(), dict(record.headers() or []).get("a44-seq", b"")
            if place[1] + 1 >= left[place[0]]:
                left[place[0]] = 0
    finally:
        consumer.close()
    return [found[place] for place in sorted(found)]
