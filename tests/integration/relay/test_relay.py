"""The outbox reaches Kafka in order of commit, every row once numbered, whatever dies in between."""

import asyncio
from collections.abc import Sequence

import psycopg
import pytest

from processors.adapters.kafka.partitioner import partition_of
from processors.adapters.postgres.relay_store import open_relay_store, rewind_relay
from processors.adapters.postgres.statements import statements
from processors.ports.relay import Progress
from processors.ports.streams import Delivery, Outgoing
from schemas.errors import Refused, Unavailable
from tests.integration.relay.conftest import PARTITIONS, Published, Stage, Wrapped, stranger
from tests.support.waiting import until

KEYS = [f"key-{n}" for n in range(20)]


def in_order(records: Sequence[Published], key: str = "k") -> list[str]:
    return [record.value for record in records if record.key == key]


async def test_rows_are_numbered_densely_in_the_partition_that_the_java_client_would_choose(stage: Stage):
    async with stage.relay(), stage.writer() as outbox:
        for n, key in enumerate(KEYS):
            await outbox.put(f"v{n}", key=key, headers={"traceparent": f"t{n}", "é": "ü"})
        await outbox.wake()
        records = await stage.until_published(*(f"v{n}" for n in range(len(KEYS))))
    assert len(records) == len(KEYS)
    for partition in range(PARTITIONS):
        numbers = [record.seq for record in records if record.partition == partition]
        assert numbers == list(range(1, len(numbers) + 1))
    for record in records:
        n = int(record.value[1:])
        assert record.partition == partition_of(record.key.encode(), PARTITIONS)
        told = {**record.headers}
        assert len(told.pop("a44-seal")) == 32
        assert told == {"a44-shard": "0", "traceparent": f"t{n}", "é": "ü"}


async def test_a_commit_wakes_the_relay_and_without_a_wake_the_poll_finds_it(stage: Stage):
    async with stage.relay(), stage.writer() as outbox:
        await outbox.put("woken")
        await outbox.wake()
        await stage.until_published("woken")
        await outbox.put("polled")
        assert in_order(await stage.until_published("polled")) == ["woken", "polled"]


async def test_e01_a_slow_transaction_is_waited_for_and_not_skipped(stage: Stage):
    async with stage.relay(), stage.writer() as slow, stage.writer() as quick:
        async with slow.conn.transaction():
            await slow.put("slow-1")
            await quick.put("quick-1", "quick-2")
            await quick.wake()
            await slow.put("slow-2")
            await asyncio.wait_for(relay_looked_again(quick.conn), 10)
            assert await stage.published() == []
        records = await stage.until_published("slow-1", "slow-2", "quick-1", "quick-2")
    assert in_order(records) == ["slow-1", "slow-2", "quick-1", "quick-2"]
    assert [record.seq for record in records] == [1, 2, 3, 4]


async def test_ids_that_were_rolled_back_leave_no_hole_in_the_numbers(stage: Stage):
    async with stage.relay(), stage.writer() as outbox:
        await outbox.put("a")
        async with outbox.conn.transaction(force_rollback=True):
            await outbox.put("never")
        await outbox.put("b")
        await outbox.wake()
        records = await stage.until_published("a", "b")
    assert [(record.value, record.seq) for record in records] == [("a", 1), ("b", 2)]


async def test_an_own_transaction_that_wrote_nothing_to_publish_holds_rows_up_only_while_it_is_open(stage: Stage):
    async with stage.relay(), stage.writer() as busy, stage.writer() as outbox:
        async with busy.conn.transaction():
            await busy.conn.execute("select pg_current_xact_id()")
            await outbox.put("a")
            await outbox.wake()
            await asyncio.wait_for(relay_looked_again(outbox.conn), 10)
            assert await stage.published() == []
        assert in_order(await stage.until_published("a")) == ["a"]


async def test_a_crash_between_publishing_and_keeping_publishes_the_same_rows_with_the_same_numbers(stage: Stage):
    async with stage.writer() as outbox:
        for n, key in enumerate(KEYS):
            await outbox.put(f"v{n}", key=key)
        crash = CrashAfterSending()
        async with stage.relay("first", crash.wrap) as first:
            await asyncio.wait_for(crash.sent.wait(), 20)
            first.cancel()
        await outbox.put("later", key=KEYS[0])
        async with stage.relay("second"):
            records = await stage.until_published("later")
    by_place: dict[tuple[int, int], set[str]] = {}
    for record in records:
        by_place.setdefault((record.partition, record.seq), set()).add(record.value)
    assert all(len(values) == 1 for values in by_place.values())
    assert len(by_place) == len(KEYS) + 1
    assert len(records) == 2 * len(KEYS) + 1


async def test_one_relay_publishes_and_the_standby_takes_over_when_the_owner_is_gone(stage: Stage):
    stage.lease = 6.0  # longer than this process stands still where others work
    async with stage.writer() as outbox, stage.relay("first") as first:
        await until(lambda: owned_by(outbox.conn, "first"), "the first relay owns the shard")
        async with stage.relay("second"):
            await outbox.put("a")
            await outbox.wake()
            await stage.until_published("a")
            await until(outbox.is_kept, "the first relay has kept what it published")
            assert await owned_by(outbox.conn, "first")
            first.cancel()
            await outbox.put("b")
            records = await stage.until_published("a", "b")
            assert await owned_by(outbox.conn, "second")
    assert [(record.value, record.seq) for record in records] == [("a", 1), ("b", 2)]


async def test_a_relay_that_lost_its_lease_keeps_nothing(stage: Stage):
    async with stage.writer() as outbox, open_relay_store(stage.dsn, lease=0.0) as old:
        await outbox.put("a")
        lost = await old.take("old")
        async with open_relay_store(stage.dsn, lease=60.0) as new:
            held = await new.take("new")
            assert lost is not None
            assert held is not None
            assert held.epoch > lost.epoch
            assert await old.take("old") is None
            assert await old.renew(lost.epoch) is None
            rows = await old.rows(lost.cursor, await old.horizon(await old.upper()), 10)
            progress = Progress(lost.cursor._replace(xid=rows[0].xid), {("t", 0): 1})
            assert not await old.advance(lost.epoch, progress)
            assert not await old.go_back(lost.epoch, ["t"])
            assert await new.numbers() == {}
            assert await new.renew(held.epoch) is not None


async def test_a_proper_stop_gives_the_lease_back(stage: Stage):
    async with stage.writer() as outbox:
        async with stage.relay("first"):
            await until(lambda: owned_by(outbox.conn, "first"), "the first relay owns the shard")
        assert await owned_by(outbox.conn, None)


async def test_cut_connections_to_postgres_lose_nothing_and_repeat_no_number(stage: Stage):
    async with stage.relay(), stage.writer() as outbox:
        for n in range(30):
            await outbox.put(f"v{n}")
            await outbox.wake()
            if n % 10 == 5:
                await outbox.conn.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where application_name like 'a44-%' and datname = current_database()"
                )
        records = await stage.until_published(*(f"v{n}" for n in range(30)))
    numbers = {record.seq: record.value for record in records}
    assert numbers == {n + 1: f"v{n}" for n in range(30)}


async def test_a_batch_that_kafka_did_not_take_is_sent_again_with_the_same_numbers(stage: Stage):
    flaky = FailHalfOnce()
    async with stage.writer() as outbox:
        for n, key in enumerate(KEYS):
            await outbox.put(f"v{n}", key=key)
        async with stage.relay("only", flaky.wrap):
            await stage.until_published(*(f"v{n}" for n in range(len(KEYS))))
            records = await stage.published()
    assert flaky.failed
    assert len({(record.partition, record.seq, record.value) for record in records}) == len(KEYS)
    assert {record.seq for record in records if record.partition == 0} == set(
        range(1, 1 + max(record.seq for record in records if record.partition == 0))
    )


async def test_a_missing_topic_is_made_from_its_spec(stage: Stage):
    stage.topic = f"{stage.topic}-other"
    stage.specs = [type(stage.spec)(stage.topic, PARTITIONS, 86_400_000)]
    async with stage.relay(), stage.writer() as outbox:
        await outbox.put("a")
        await outbox.wake()
        assert in_order(await stage.until_published("a")) == ["a"]


async def test_a_rewind_repeats_nothing_that_ingest_may_have_forgotten(stage: Stage):
    async with stage.writer() as outbox:
        await outbox.put_nine_days_ago("forgotten")
        await outbox.put("remembered")
        async with stage.relay():
            await stage.until_published("forgotten", "remembered")
        await rewind_relay(stage.dsn)
        await outbox.put("new")
        async with stage.relay():
            records = await stage.until_published("new")
    assert in_order(records) == ["forgotten", "remembered", "remembered", "new"]


async def test_a_rewind_skips_nothing_that_was_never_sent(stage: Stage):
    async with stage.writer() as outbox:
        await outbox.put_nine_days_ago("old")
        await rewind_relay(stage.dsn)
        async with stage.relay():
            await stage.until_published("old")


async def test_a_rewind_after_a_long_rest_counts_from_the_last_day_of_work(stage: Stage):
    async with stage.writer() as outbox:
        await outbox.conn.execute(
            "insert into automation.sessions (owner, lease_until) values ('x', clock_timestamp() - interval '9 days')"
        )
        await outbox.put_nine_days_ago("of the last day")
        async with stage.relay():
            await stage.until_published("of the last day")
        await rewind_relay(stage.dsn)
        await outbox.put("new")
        async with stage.relay():
            records = await stage.until_published("new")
    assert in_order(records) == ["of the last day", "of the last day", "new"]


async def test_a_role_that_cannot_see_open_transactions_is_refused(stage: Stage):
    async with stage.writer() as outbox, stranger(outbox.conn, stage.dsn) as dsn, open_relay_store(dsn) as store:
        with pytest.raises(Refused, match="pg_read_all_stats"):
            await store.take("blind")


@pytest.mark.parametrize("analyzed", [False, True])
async def test_waiting_rows_are_read_along_the_key_and_never_sorted(stage: Stage, analyzed: bool):
    async with stage.writer() as outbox, open_relay_store(stage.dsn) as store:
        await outbox.conn.execute(
            "insert into automation.outbox (topic, partition_key, value)"
            " select 't', 'k', '' from generate_series(1, 20000)"
        )
        if analyzed:
            await outbox.conn.execute("analyze automation.outbox")
        hold = await store.take("one")
        assert hold is not None
        upper = await store.upper()
        asked = {"xid": 1, "id": 19_000, "horizon": upper, "shard": 0, "limit": 1000}
        conn = await store._connection()
        plans = []
        for name in ("next_rows", "waits"):
            plan = await conn.execute("explain " + statements("relay")[name], asked)
            plans.append("\n".join(line for (line,) in await plan.fetchall()))
        assert len(await store.rows(hold.cursor, upper, 1000)) == 1000
    for text in plans:
        assert "Index" in text
        assert "Seq Scan" not in text
        assert "->  Sort" not in text
        assert "Bitmap" not in text


class CrashAfterSending(Wrapped):
    """Delivers the first batch and never answers: the place where a process may die."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = asyncio.Event()

    async def send(self, batch: Sequence[Outgoing]) -> list[Delivery | Unavailable | Refused]:
        answers = await super().send(batch)
        assert all(isinstance(answer, Delivery) for answer in answers)
        self.sent.set()
        await asyncio.Event().wait()
        return answers


class FailHalfOnce(Wrapped):
    """Delivers only the first half of the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = False

    async def send(self, batch: Sequence[Outgoing]) -> list[Delivery | Unavailable | Refused]:
        if self.failed:
            return await super().send(batch)
        self.failed = True
        half = len(batch) // 2
        answers = await super().send(batch[:half])
        return answers + [Unavailable("E_UNAVAILABLE", "the broker went away")] * (len(batch) - half)


async def owned_by(conn: psycopg.AsyncConnection, owner: str | None) -> bool:
    row = await (await conn.execute("select owner from automation.relay_shards where shard = 0")).fetchone()
    return row == (owner,)


async def relay_looked_again(conn: psycopg.AsyncConnection) -> None:
    """Until the relay has looked at least once more in full: its statements are seen by their start times."""
    seen: set[object] = set()
    while len(seen) < 4:
        rows = await conn.execute(
            "select query_start from pg_stat_activity"
            " where application_name = 'a44-relay' and datname = current_database()"
        )
        seen.update(await rows.fetchall())
        await asyncio.sleep(0.02)
