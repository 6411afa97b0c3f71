"""A log restored into another cluster, where transactions are counted anew: nothing is skipped, nothing sent twice."""

import pytest

from processors.adapters.postgres.relay_store import open_relay_store
from tests.integration.relay.conftest import Outbox, Stage

OTHER_CLUSTER = 4_000_000_000


async def as_if_restored(outbox: Outbox, shift: int) -> None:
    """Rows and cursor carry the numbers of a cluster that had seen more (or fewer) transactions."""
    for moved in (
        "update automation.outbox set xid = greatest(xid::text::bigint + %s, 10)::text::xid8",
        "update automation.relay_shards set cursor_xid = greatest(cursor_xid::text::bigint + %s, 10)::text::xid8",
    ):
        await outbox.conn.execute(moved, (shift,))
    await outbox.conn.execute("delete from automation.relay_checkpoints")
    await outbox.conn.execute(
        "update automation.installation set system_identifier = system_identifier - 1, writer_role = 1"
    )


@pytest.mark.parametrize("shift", [OTHER_CLUSTER, -300])
async def test_rows_of_before_the_restore_and_of_after_go_out_in_order_and_sent_ones_stay_sent(
    stage: Stage, shift: int
) -> None:
    async with stage.writer() as outbox:
        await outbox.put("a", "b")
        async with stage.relay("first"):
            await stage.until_published("a", "b")
        await outbox.put("c", "d")
        await as_if_restored(outbox, shift)
        await outbox.put("e")
        async with stage.relay("second"):
            await stage.until_published("c", "d", "e")
            await outbox.put("f")
            records = await stage.until_published("f")
        own = "select i.system_identifier = c.system_identifier from automation.installation i, pg_control_system() c"
        assert await outbox.value(own)
        role = "select rolname = session_user from automation.installation join pg_roles r on r.oid = writer_role"
        assert await outbox.value(role)
    assert [(record.value, record.seq) for record in records] == list(zip("abcdef", range(1, 7), strict=True))


async def test_a_transaction_that_is_open_while_rows_are_stamped_is_not_skipped(stage: Stage) -> None:
    async with stage.writer() as outbox, stage.writer() as slow:
        await outbox.put("a")
        async with stage.relay("first"):
            await stage.until_published("a")
        await outbox.put("b")
        await as_if_restored(outbox, OTHER_CLUSTER)
        async with slow.conn.transaction():
            await slow.put("slow")
            async with stage.relay("second"):
                assert [record.value for record in await stage.until_published("b")] == ["a", "b"]
        async with stage.relay("third"):
            records = await stage.until_published("slow")
    assert [record.value for record in records] == ["a", "b", "slow"]


async def test_a_database_that_was_not_restored_is_left_alone(stage: Stage) -> None:
    async with stage.writer() as outbox, open_relay_store(stage.dsn) as store:
        await outbox.put("a")
        before = await outbox.value("select min(xid)::text from automation.outbox")
        assert await store.take("one") is not None
        assert await outbox.value("select min(xid)::text from automation.outbox") == before
