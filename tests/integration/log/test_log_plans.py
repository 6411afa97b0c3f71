"""What runs all the time reads a few rows by an index, however much waits: one hot lane, many lanes, many queues."""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection, sql

from processors.adapters.postgres.connections import connect
from processors.adapters.postgres.statements import statements
from tests.integration.log.lab import PROJECT, QUEUE
from tests.support.databases import fresh_database

BACKLOG = Path(__file__).with_name("backlog.sql")
ROOM = 100
QUEUES = 301
HOT_TABLES = {"live_runs", "lanes"}
Plan = dict[str, Any]


class Guarded(NamedTuple):
    """A statement, its parameters, the most 8 kB pages that it may touch, what its transaction did before, and the most
    pairs of rows that it may try in vain: a loop over two lists of a batch, or over a session and a batch, grows with
    its square. `variant` tells apart what is guarded with several sets of parameters.
    """

    topic: str
    name: str
    params: Mapping[str, Any]
    pages: int
    after: "Guarded | None" = None
    pairs: int = 10 * ROOM
    variant: str = ""

    @property
    def title(self) -> str:
        return self.name + self.variant


def columns_of_runs() -> dict[str, list[Any]]:
    lanes = ["hot" if number % 2 else f"lane-{50_001 + number}" for number in range(ROOM)]
    same = {"project_id": PROJECT, "queue_id": QUEUE, "workflow_id": "wf", "definition_id": 1, "version": "1"}
    same |= {"ordered": True, "event_type": "order.paid", "trigger_id": "trg", "idempotency_key": "k", "input": "{}"}
    same |= {
        "correlation_id": None,
        "operation_version": 1,
        "redrive_count": 0,
        "accepted_at": None,
        "deadline": None,
        "stale_at": None,
        "input_ref": None,
    }
    same |= {"partition_key": "p", "occurred_at": "2026-07-19T14:00:00Z"}
    same |= {"attempt": 1, "occurred_digits": 3, "names_trigger": True, "sent_partition_key": None}
    return {**{name: [value] * ROOM for name, value in same.items()}, "run_id": runs(90_000), "lane": lanes, **EVENTS}


def runs(first: int, count: int = ROOM) -> list[str]:
    return [f"run_{number:026}" for number in range(first, first + count)]


EVENTS = {"project_id": [PROJECT] * ROOM, "event_id": [f"evt_new_{number}" for number in range(ROOM)]}
KEYS = {"key_hash": [sha256(str(number).encode()).digest()[:16] for number in range(1, ROOM + 1)]}
ONE = {"projects": [PROJECT], "queues": [QUEUE]}
HOT_LANE = {**ONE, "lanes": ["hot"]}
NONE = [None] * ROOM
LETTERS = [f"dlq_{number:026}" for number in range(ROOM)]
RECORDS = {
    **KEYS,
    **EVENTS,
    "body_hash": [b"x"] * ROOM,
    "dead_letter_id": LETTERS,
    "raw": [b"x"] * ROOM,
    "key": NONE,
    "headers": NONE,
    "left_out": [0] * ROOM,
    "partition": [0] * ROOM,
    "record_offset": [0] * ROOM,
    "topic": ["t"] * ROOM,
    "dead_letters_topic": "d",
}
SEEN = Guarded("ingest", "note_events", {**RECORDS, "direct": [False] * ROOM}, 25 * ROOM)
ENDS = {"state": ["succeeded"] * ROOM, **dict.fromkeys(("result", "error_code", "error", "reason", "summary"), NONE)}
GUARDED = (
    Guarded("executor", "claim_any", {"room": ROOM, "session": 2}, 25 * ROOM),
    Guarded("executor", "claim_hinted", {"runs": runs(60001), "session": 2}, 25 * ROOM),
    Guarded("executor", "hand_on", {**ONE, "room": ROOM, "session": 2}, 200),
    Guarded("executor", "pass_lanes", {**HOT_LANE, "lane_seqs": [1]}, 60),
    Guarded("executor", "lock_lanes", HOT_LANE, 20),
    Guarded("executor", "lock_runs", {"runs": runs(61001), "session": 1}, 8 * ROOM),
    Guarded("executor", "owned_runs", {"session": 1}, 2 * ROOM, pairs=QUEUES * ROOM),  # only when a connection broke
    Guarded("executor", "read_mail", {"session": 1}, 2 * ROOM),
    Guarded("executor", "set_crashes", {"run_id": runs(61001), "crashes": [0] * ROOM, "session": 1}, 25 * ROOM),
    Guarded("executor", "forgive_lost", {"session": 1}, 60),
    Guarded(
        "executor",
        "release_runs",
        {"run_id": runs(61001), "in_flight": [False] * ROOM, "session": 1},
        25 * ROOM,
    ),
    Guarded(
        "executor",
        "park_runs",
        {"run_id": runs(61001), "state": ["sleeping"] * ROOM, "visible_at": NONE, "session": 1},
        25 * ROOM,
    ),
    Guarded("executor", "end_runs", {"run_id": runs(61001), "dead_letter_id": NONE, **ENDS, "session": 1}, 25 * ROOM),
    Guarded(
        "executor",
        "announce_letters",
        {"run_ids": runs(61001), "dead_letter_ids": LETTERS, "dead_letters_topic": "t"},
        10 * ROOM,
    ),
    SEEN,
    Guarded("grants", "create_runs", columns_of_runs(), 60 * ROOM, after=SEEN),
    Guarded("ingest", "note_events", {**RECORDS, "direct": [True] * ROOM}, 60 * ROOM, variant="_of_direct_records"),
    Guarded(
        "ingest",
        "postpone",
        {
            "letter_id": LETTERS,
            "topic": ["t"] * ROOM,
            "partition_key": ["p"] * ROOM,
            "headers": ["{}"] * ROOM,
            "value": [b"x"] * ROOM,
        },
        50 * ROOM,
    ),
    Guarded("door", "read_keys", KEYS, 10 * ROOM),
    Guarded(
        "door",
        "announce_envelopes",
        {
            **KEYS,
            "topic": "t",
            "event_id": [f"evt_{n}" for n in range(1, ROOM + 1)],
            "partition_key": ["p"] * ROOM,
            "value": [b"x"] * ROOM,
        },
        25 * ROOM,
    ),
    Guarded("grants", "grant_ready", {**ONE, "most": ROOM}, 25 * ROOM),
    Guarded("deadlines", "grant_overdue", {**ONE, "most": ROOM}, 20),
    Guarded("grants", "lock_queues", ONE, 20),
    Guarded("grants", "fold_deltas", ONE, 20),
    Guarded("grants", "recount", {"project": PROJECT, "queue": QUEUE}, 700),
    Guarded("scheduler", "look", {"grace": 3.0}, 200),
    Guarded("scheduler", "close_dead_sessions", {"dead": [1], "batches": [0]}, 60),
    Guarded("scheduler", "wake", {"most": ROOM}, 25 * ROOM),
    Guarded("scheduler", "hungry_queues", {}, 1500),
    Guarded("scheduler", "regrant", {"most": ROOM}, 400),
)
EVERY = pytest.mark.parametrize("guarded", GUARDED, ids=[guarded.title for guarded in GUARDED])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backlog(postgres_dsn: str, migrated_template_name: str) -> AsyncIterator[str]:
    """Address of a database in which very much waits."""
    async with fresh_database(postgres_dsn, migrated_template_name) as dsn:
        async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
            await conn.execute(BACKLOG.read_bytes())
            await conn.execute("analyze")
        yield dsn


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def early_plans(postgres_dsn: str, migrated_template_name: str) -> AsyncIterator[dict[str, Plan]]:
    """Plans that were made and kept while nothing waited, as they run when very much waits."""
    async with fresh_database(postgres_dsn, migrated_template_name) as dsn:
        async with await AsyncConnection.connect(dsn, autocommit=True) as other:
            await other.execute("alter table automation.live_runs set (autovacuum_enabled = off)")
            await other.execute("vacuum analyze")
            conn = await connect(dsn, "plans")
            async with conn:
                await conn.execute("set plan_cache_mode = force_generic_plan")
                for guarded in GUARDED:
                    await prepare(conn, guarded)
                    await explained(conn, guarded)
                await other.execute(BACKLOG.read_bytes())
                found = {guarded.title: await explained(conn, guarded) for guarded in GUARDED}
        yield found


def parameters(guarded: Guarded) -> list[str]:
    return sorted(set(re.findall(r"%\((\w+)\)s", statements(guarded.topic)[guarded.name])))


async def prepare(conn: AsyncConnection[Any], guarded: Guarded) -> None:
    text = statements(guarded.topic)[guarded.name]
    for place, name in enumerate(parameters(guarded), 1):
        text = text.replace(f"%({name})s", f"${place}")
    await conn.execute(f"prepare {guarded.title} as {text}".encode())


async def explained(conn: AsyncConnection[Any], guarded: Guarded) -> Plan:
    """The plan as it ran; nothing of it stays."""
    values = [sql.Literal(guarded.params[name]) for name in parameters(guarded)]
    call = sql.SQL("({})").format(sql.SQL(", ").join(values)) if values else sql.SQL("")
    explain = sql.SQL("explain (analyze, buffers, format json) execute {}{}")
    async with conn.transaction(force_rollback=True):
        if guarded.after is not None:
            before = guarded.after
            await conn.execute(statements(before.topic)[before.name], before.params)
        cursor = await conn.execute(explain.format(sql.Identifier(guarded.title), call), prepare=False)
        row = await cursor.fetchone()
    assert row is not None
    plan: Plan = row[0][0]["Plan"]
    return plan


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def touched(plan: Plan) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def in_vain(plan: Plan) -> int:
    """Pairs of rows that joins tried and dropped, and rows that scans found and dropped."""
    dropped = ("Rows Removed by Join Filter", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    return sum(round(node.get(kind, 0) * node["Actual Loops"]) for node in nodes(plan) for kind in dropped)


def check(plan: Plan, guarded: Guarded) -> None:
    scans = [node for node in nodes(plan) if node["Node Type"] == "Seq Scan" and node["Relation Name"] in HOT_TABLES]
    assert not scans, json.dumps(plan, indent=1)
    assert touched(plan) <= guarded.pages, f"{touched(plan)} pages\n{json.dumps(plan, indent=1)}"
    assert in_vain(plan) <= guarded.pairs, f"{in_vain(plan)} pairs in vain\n{json.dumps(plan, indent=1)}"


@EVERY
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_what_runs_all_the_time_reads_little(backlog: str, guarded: Guarded, mode: str) -> None:
    conn = await connect(backlog, "plans")
    async with conn:
        await conn.execute(sql.SQL("set plan_cache_mode = {}").format(mode))
        await prepare(conn, guarded)
        check(await explained(conn, guarded), guarded)


@EVERY
async def test_a_plan_made_while_nothing_waited_is_good_when_much_waits(
    early_plans: dict[str, Plan], guarded: Guarded
) -> None:
    check(early_plans[guarded.title], guarded)


async def test_the_guards_see_a_scan(backlog: str) -> None:
    async with await psycopg.AsyncConnection.connect(backlog) as conn:
        text = "explain (analyze, buffers, format json) select from automation.live_runs where input = ''"
        row = await (await conn.execute(text)).fetchone()
    assert row is not None
    unguarded = Guarded("", "", {}, 10_000)
    with pytest.raises(AssertionError, match="Seq Scan"):
        check(row[0][0]["Plan"], unguarded)
    assert touched(row[0][0]["Plan"]) > 1000
