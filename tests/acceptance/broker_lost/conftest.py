"""The whole service under a small load that does not stop, on the broker that the suite runs on."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import confluent_kafka
import pytest
import pytest_asyncio

from ops.client import Client
from ops.local import LocalOptions, LocalStack
from processors.adapters.postgres.scripts import query
from schemas.run_events import decode_run_event
from tests.support.waiting import until
from topology.publication import collect

LANES = 5
FLOW = """
name: {name}
version: 1
trigger: {trigger}
concurrency: {{ max: 10, partitionKey: "{{{{ input.lane }}}}" }}
steps:
  - id: pause
    uses: sleep
    duration: 50ms
"""
FLOWS = {"hooked": "{ webhook: true }", "direct": "{ event: orders.paid }", "by_hand": "{ event: nobody.sends }"}
# Runs of a lane that overlap, or whose numbers are not dense. A lane that was empty for a while begins with 1 again.
DISORDER = """
select r.*
  from (select run_id, workflow_id, lane, started_at, lag(ended_at) over lane as ended_before,
               lane_seq, lag(lane_seq) over lane as seq_before
          from automation.runs_ended
        window lane as (partition by workflow_id, lane order by started_at)) r
 where ended_before > started_at or lane_seq not in (1, seq_before + 1)
"""


@dataclass
class Load:
    """What was accepted, by run id where the door told one, and the keys of records straight to Kafka."""

    stack: LocalStack
    client: Client
    run_ids: list[str] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    accepting: asyncio.Task[None] | None = None

    async def webhook(self) -> None:
        number = len(self.run_ids)
        body = json.dumps({"lane": f"l{number % LANES}", "number": number}).encode()
        signed = await asyncio.to_thread(self.client.sign, "trg_hooked_webhook", body, key=f"hook-{number}")
        answer = await asyncio.to_thread(self.client.deliver, signed, body)
        assert answer.status == 202
        self.run_ids.append(answer.document["run_id"])

    async def by_hand(self) -> None:
        number = len(self.run_ids)
        given = json.dumps({"lane": f"l{number % LANES}", "number": number})
        answer = await asyncio.to_thread(self.client.run, "wf_by_hand", given, f"hand-{number}")
        self.run_ids.append(answer.document["run_id"])

    def produce(self, numbers: range) -> None:
        """Straight to Kafka, as often as one likes: the key stands for the event."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.stack.kafka_bootstrap, "acks": "all"})
        for number in numbers:
            envelope = {
                "id": f"evt_direct_{number}",
                "type": "orders.paid",
                "idempotency_key": f"direct-{number}",
                "partition_key": f"p{number % LANES}",
                "occurred_at": "2026-11-29T00:00:00Z",
                "attempt": 1,
                "project_id": self.stack.options.project,
                "data": {"lane": f"l{number % LANES}", "number": number},
            }
            producer.produce("a44.events.v1", key=envelope["partition_key"], value=json.dumps(envelope))
            self.keys.add(f"direct-{number}")
        assert producer.flush(30) == 0

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Webhooks and runs by hand, one after the other, until the block is left."""
        stop = asyncio.Event()

        async def accept() -> None:
            while not stop.is_set():
                await self.webhook()
                await self.by_hand()

        self.accepting = asyncio.create_task(accept())
        try:
            yield
        finally:
            stop.set()  # what is under way is answered, or it would not be known whether it was accepted
            await self.accepting

    async def accepted(self, more: int) -> None:
        """Return once that many more were accepted."""
        goal = len(self.run_ids) + more

        def reached() -> bool:
            if self.accepting is not None and self.accepting.done():
                self.accepting.result()
            return len(self.run_ids) >= goal

        await until(reached, f"{more} more are accepted", 120)

    async def count(self, where: str = "true") -> int:
        rows = await query(self.stack.log_dsn, f"select count(*) from automation.runs where {where}")  # noqa: S608
        return int(rows[0][0])

    async def all_ended(self) -> bool:
        return await self.count("state = 'succeeded'") == len(self.run_ids) + len(self.keys)

    async def check(self) -> None:
        """Every accepted thing is exactly one run, none is alive, lanes are in order."""
        rows = await query(self.stack.log_dsn, "select run_id, idempotency_key, trigger_id from automation.runs_ended")
        assert len(rows) == await self.count()
        direct = {key for _, key, _ in rows if key.startswith("direct-")}
        assert direct == self.keys
        assert sorted(run for run, key, _ in rows if key not in direct) == sorted(self.run_ids)
        assert await query(self.stack.log_dsn, DISORDER) == []
        letters = await query(self.stack.log_dsn, "select count(*) from automation.dead_letters")
        assert letters[0][0] == 0

    async def until_announced(self) -> None:
        """Every end is on the topic of run events as it is now, from its beginning."""
        ended = await query(self.stack.log_dsn, "select run_id from automation.runs_ended")
        expected, found = {run for (run,) in ended}, set[str]()
        with closing(Reading(self.stack.kafka_bootstrap)) as reading:

            async def all_found() -> bool:
                found.update(await asyncio.to_thread(reading.more))
                return found >= expected

            await until(all_found, "every end is announced", 90)
        assert found == expected


class Reading:
    """The run events that are in the topic."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False}
        self._consumer = confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest"})
        self._partitions = 0

    def _begin(self) -> None:
        """Nothing is assigned while the topic that was deleted is not there again."""
        topic = "a44.run-events.v1"
        self._partitions = len(self._consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        self._consumer.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(self._partitions)])

    def more(self) -> list[str]:
        if not self._partitions:
            self._begin()
        messages = self._consumer.consume(500, timeout=0.3)
        events = [decode_run_event(message.value()) for message in messages if message.error() is None]
        return [event.run_id for event in events if event.state == "succeeded"]

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture(scope="session")
def broker_kind() -> Literal["embedded", "apache"]:
    return "apache" if os.environ.get("A44_TEST_BROKER") == "apache" else "embedded"


@pytest_asyncio.fixture
async def stack(broker_kind: Literal["embedded", "apache"]) -> AsyncIterator[LocalStack]:
    async with LocalStack(LocalOptions(kafka=broker_kind, environment={"A44_LEASE_SECONDS": "3"})) as running:
        yield running


@pytest.fixture
def load(stack: LocalStack, tmp_path: Path) -> Iterator[Load]:
    for name, trigger in FLOWS.items():
        (tmp_path / f"{name}.yaml").write_text(FLOW.format(name=name, trigger=trigger))
    with closing(Client(stack.url, stack.token)) as client:
        client.publish(collect([tmp_path]))
        yield Load(stack, client)
