"""Redrives on the real log: each letter once, as the next version of its operation, at its pace, under a name."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from processors.adapters.objects.storage import open_storage
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.redrives import PostgresRedrives
from processors.ingest.ingest import Ingest
from processors.ports.journal import Batch, RunEnd
from processors.ports.measures import Measures
from processors.ports.redrives import Order
from processors.ports.storage import Storage
from processors.ports.streams import Record
from processors.runtime.current_catalog import CurrentCatalog
from processors.scheduler.redriver import Redriver
from processors.scheduler.scheduler import Scheduler
from schemas.envelope import decode_envelope, encode_envelope, envelope_text, referring
from schemas.errors import Refused, Unavailable
from schemas.framing import decode_record
from schemas.ids import dead_letter_id, redrive_id
from schemas.kept_records import headers_of
from schemas.records import ErrorInfo
from schemas.stored_bodies import Reference, StoredBody, too_large_to_travel
from tests.integration.log.lab import PROJECT
from tests.integration.log.polls import Stage, Told, Topic
from tests.support.waiting import until

QUEUE = "q_orders"


class Yard:
    """Where runs die and are sent again."""

    def __init__(self, stage: Stage, redrives: PostgresRedrives) -> None:
        self.stage, self.lab, self.redrives = stage, stage.lab, redrives
        self.topic = Topic()
        self.measures = Measures()

    def redriver(self, storage: Storage | None = None) -> Redriver:
        return Redriver(self.redrives, CurrentCatalog(self.stage.catalog), self.measures, storage)

    async def take(self, count: int, lane: str | None = None) -> None:
        """Events become runs, each in a lane of its own or all in one."""
        data = [json.dumps({"lane": lane or f"lane-{number}", "n": number}) for number in range(count)]
        await self.stage.ingest([self.topic.direct(data=one) for one in data])

    async def die(self) -> list[str]:
        """Every run that is there fails, one after the other where a lane keeps them in order."""
        journal = await self.lab.journal()
        died: list[str] = []
        while claims := await self.lab.claim(journal):
            ends = []
            for claim in claims:
                died.append(dead_letter_id(self.topic.millis + len(died)))
                ends.append(
                    RunEnd(
                        claim.run_id,
                        claim.project_id,
                        claim.queue_id,
                        claim.lane,
                        claim.lane_seq,
                        "failed",
                        None,
                        ErrorInfo("E_UPSTREAM_503", "Upstream", "no answer"),
                        died[-1],
                        "max_attempts_exceeded",
                        "died",
                    )
                )
            await journal.commit(Batch(ends=ends))
            await self.lab.schedule().feed()
        return died

    def order(
        self, letters: Sequence[str], rate: float = 1000.0, cap: float = 1000.0, *, allow_stale: bool = False
    ) -> Order:
        made = redrive_id(self.topic.millis)
        return Order(made, PROJECT, QUEUE, "tok_maria", "the partner is back", "true", allow_stale, rate, cap, letters)

    async def wind(self, seconds: float) -> None:
        """So much time passes for the pace of all orders."""
        await self.lab.rows(
            "update automation.redrives set paced_at = clock_timestamp() - make_interval(secs => %s)", seconds
        )

    async def redrive(self, letters: Sequence[str]) -> None:
        await self.redrives.start(self.order(letters))
        await self.wind(1)
        await self.redriver().look()


@pytest_asyncio.fixture
async def yard(stage: Stage) -> AsyncIterator[Yard]:
    async with open_pool(stage.lab.dsn, "redrives", hot=True) as pool:
        yield Yard(stage, PostgresRedrives(pool))


async def test_a_letter_becomes_a_new_run_of_the_same_event_with_the_next_version(yard: Yard) -> None:
    await yard.take(1)
    (letter,) = await yard.die()
    (old,) = await yard.lab.rows("select * from automation.runs")
    await yard.redrive([letter])
    (new,) = await yard.lab.rows("select * from automation.live_runs")
    assert new["run_id"] != old["run_id"]
    assert (new["operation_version"], new["redrive_count"], new["state"]) == (2, 1, "granted")
    same = ("project_id", "workflow_id", "event_id", "event_type", "trigger_id", "idempotency_key", "partition_key",
            "occurred_at", "input", "lane", "queue_id", "correlation_id")  # fmt: skip
    assert {name: new[name] for name in same} == {name: old[name] for name in same}
    assert new["accepted_at"] > old["ended_at"]
    assert await yard.lab.value("select state from automation.runs_ended where run_id = %s", old["run_id"]) == "failed"
    assert yard.measures.value("letters_redriven_total") == 1


async def test_who_why_and_both_runs_are_in_the_audit_log(yard: Yard) -> None:
    await yard.take(1)
    (letter,) = await yard.die()
    (old,) = await yard.lab.column("select run_id from automation.runs")
    await yard.redrive([letter])
    (new,) = await yard.lab.column("select run_id from automation.live_runs")
    ordered, done = await yard.lab.rows(
        "select project_id, actor, action, subject, details from automation.audit_log"
        " where actor = 'tok_maria' order by audit_id"
    )
    assert (ordered["action"], ordered["actor"], ordered["project_id"]) == ("redrive.start", "tok_maria", PROJECT)
    assert json.loads(ordered["details"])["letters"] == 1
    assert (done["action"], done["actor"], done["subject"]) == ("dead_letter.redrive", "tok_maria", letter)
    assert json.loads(done["details"]) == {
        "redrive": ordered["subject"], "reason": "the partner is back", "old_run": old, "new_run": new,
    }  # fmt: skip


async def test_g08_a_redrive_inside_the_window_of_its_key_is_no_repetition_and_a_repetition_is_no_redrive(
    yard: Yard,
) -> None:
    record = yard.topic.direct(data='{"lane":"a"}', idempotency_key="the-key")
    await yard.stage.ingest([record])
    (letter,) = await yard.die()
    (first,) = await yard.lab.column("select run_id from automation.idempotency_keys")
    await yard.redrive([letter])
    assert await yard.lab.value("select count(*)::int from automation.live_runs") == 1
    await yard.stage.ingest([record])  # Kafka brings it again
    assert await yard.lab.value("select count(*)::int from automation.runs") == 2
    assert await yard.lab.column("select run_id from automation.idempotency_keys") == [first]


async def test_a_letter_is_redriven_once_however_many_ask(yard: Yard) -> None:
    await yard.take(20)
    letters = await yard.die()
    orders = [yard.order(letters, rate=100) for _ in range(5)]
    started = await asyncio.gather(*(yard.redrives.start(order) for order in orders))
    assert sorted(one.letters for one in started) == [0, 0, 0, 0, 20]
    await yard.wind(1)
    await asyncio.gather(*(yard.redriver().look() for _ in range(4)))
    assert await yard.lab.value("select count(*)::int from automation.live_runs") == 20
    assert (
        await yard.lab.value("select count(*)::int from automation.audit_log where action like 'dead_letter.%%'") == 20
    )
    assert (await yard.redrives.start(yard.order(letters))).letters == 0
    assert await yard.redrives.candidates(PROJECT, QUEUE, whole=False, after=None, limit=100) == []
    assert await yard.redrives.due() == []


async def test_the_log_keeps_the_pace_and_a_pause_is_not_made_up_for(yard: Yard) -> None:
    await yard.take(100)
    letters = await yard.die()
    await yard.redrives.start(yard.order(letters, rate=20))
    assert await yard.redriver().look() == []
    await yard.wind(0.525)
    await yard.redriver().look()
    assert await yard.lab.value("select redriven from automation.redrives") == 10
    await yard.redriver().look()  # at once: nothing is due
    assert await yard.lab.value("select redriven from automation.redrives") in (10, 11)
    done = await yard.lab.value("select redriven from automation.redrives")
    await yard.wind(3600)
    await yard.redriver().look()
    assert await yard.lab.value("select redriven from automation.redrives") == done + 20
    order = await yard.lab.column("select dead_letter_id from automation.redrive_letters where done_at is not null")
    assert set(order) == set(letters[: done + 20])


async def test_slow_rates_move_too(yard: Yard) -> None:
    await yard.take(2)
    await yard.redrives.start(yard.order(await yard.die(), rate=1 / 60))
    await yard.wind(59)
    assert await yard.redrives.due() == []
    await yard.wind(61)
    await yard.redriver().look()
    assert await yard.lab.value("select redriven from automation.redrives") == 1


async def test_all_redrives_of_a_project_stay_under_its_cap(yard: Yard) -> None:
    await yard.take(6)
    letters = await yard.die()
    assert (await yard.redrives.start(yard.order(letters[:2], rate=20, cap=50))).rate == 20
    assert (await yard.redrives.start(yard.order(letters[2:4], rate=40, cap=50))).rate == 30
    with pytest.raises(Refused) as refused:
        await yard.redrives.start(yard.order(letters[4:], rate=1, cap=50))
    assert refused.value.code == "E_REDRIVE_RATE"
    assert await yard.lab.value("select count(*)::int from automation.redrive_letters") == 4
    other = replace(yard.order(letters[4:], rate=1, cap=50), project_id="other")
    assert (await yard.redrives.start(other)).rate == 1  # somebody else's cap is not touched
    await yard.wind(1)
    await yard.redriver().look()
    assert await yard.lab.column("select redriven from automation.redrives order by rate") == [1, 2, 2]
    assert (await yard.redrives.start(yard.order(letters[4:], rate=50, cap=50))).letters == 0  # they are in one already


async def test_a_redrive_goes_to_the_tail_of_its_lane_in_its_own_order(yard: Yard) -> None:
    await yard.take(3, lane="one")
    letters = await yard.die()
    await yard.take(2, lane="one")
    await yard.redrive(letters)
    lanes = await yard.lab.rows("select lane_seq, operation_version, input from automation.live_runs order by lane_seq")
    assert [row["lane_seq"] for row in lanes] == [4, 5, 6, 7, 8]
    assert [row["operation_version"] for row in lanes] == [1, 1, 2, 2, 2]
    assert [json.loads(row["input"])["n"] for row in lanes] == [0, 1, 0, 1, 2]
    assert len(await yard.die()) == 5


async def test_g07_the_count_of_redrives_goes_with_the_event_from_letter_to_letter(yard: Yard) -> None:
    await yard.take(1)
    versions = []
    for _ in range(3):
        (letter,) = await yard.die()
        (row,) = await yard.lab.rows("select * from automation.dead_letters where dead_letter_id = %s", letter)
        versions.append((row["redrive_count"], json.loads(row["envelope"])["redrive_count"]))
        await yard.redrive([letter])
    assert versions == [(0, 0), (1, 1), (2, 2)]
    assert await yard.lab.column("select redrive_count from automation.live_runs") == [3]
    assert await yard.lab.value("select count(distinct run_id)::int from automation.runs") == 4


async def test_a_letter_that_cannot_be_run_is_free_for_another_order_and_the_reason_is_kept(yard: Yard) -> None:
    await yard.take(2)
    gone, stays = await yard.die()
    await yard.redrives.start(yard.order([gone, stays]))
    await yard.lab.rows("update automation.dead_letters set workflow_id = 'wf_gone' where dead_letter_id = %s", gone)
    await yard.wind(1)
    await yard.redriver().look()
    (order,) = await yard.lab.rows("select redriven, refused, ended_at from automation.redrives")
    assert (order["redriven"], order["refused"]) == (1, 1)
    assert order["ended_at"] is not None
    assert await yard.lab.column("select dead_letter_id from automation.redrive_letters") == [stays]
    (said,) = await yard.lab.rows(
        "select subject, details from automation.audit_log where action like '%%not_redriven'"
    )
    assert said["subject"] == gone
    assert json.loads(said["details"])["error_code"] == "E_WORKFLOW_NOT_FOUND"
    assert [one.dead_letter_id for one in await yard.redrives.candidates(
        PROJECT, QUEUE, whole=True, after=None, limit=9)] == [gone]  # fmt: skip


AGEING = """
triggers:
  - id: trg_fresh
    type: event
    event: order.fresh
    workflow: wf_orders
    partitionKey: "{{ data.lane }}"
    deliver: {maxAge: 6h}
"""


@pytest.mark.parametrize("allow_stale", [False, True])
async def test_g08_an_order_that_allows_it_lets_an_old_event_run_and_no_other_does(
    yard: Yard, allow_stale: bool
) -> None:
    await yard.stage.catalog.publish(PROJECT, {"ageing.yaml": AGEING}, dev=False, actor="test")
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    await yard.stage.ingest([yard.topic.direct(type="order.fresh", data='{"lane":"b"}', occurred_at=now)])
    (letter,) = await yard.die()
    (kept,) = await yard.lab.column("select envelope from automation.dead_letters")
    assert json.loads(kept)["partition_key"] == "p"  # its own, though its run went by another
    await yard.redrives.start(yard.order([letter], allow_stale=allow_stale))
    await yard.wind(1)
    await yard.redriver().look()
    (run,) = await yard.lab.rows("select stale_at, partition_key, trigger_id from automation.live_runs")
    assert (run["stale_at"] is None, run["partition_key"], run["trigger_id"]) == (allow_stale, "b", "trg_fresh")


async def test_g08_an_event_that_ingest_found_too_old_runs_where_that_is_said(yard: Yard) -> None:
    await yard.stage.catalog.publish(PROJECT, {"ageing.yaml": AGEING}, dev=False, actor="test")
    old = yard.topic.event(type="order.fresh", data='{"lane":"b", "n":1.10}', occurred_at="2026-01-01T00:00:00Z")
    await yard.stage.ingest([yard.topic.record(encode_envelope(old))])
    (letter,) = await yard.redrives.candidates(PROJECT, "ingest", whole=True, after=None, limit=9)
    assert (letter.reason, letter.workflow_id, letter.trigger_id) == ("event_too_old", "wf_orders", "trg_fresh")
    assert letter.envelope is not None
    assert decode_envelope(letter.envelope.encode()) == old
    await yard.redrives.start(yard.order([letter.dead_letter_id], allow_stale=True))
    await yard.wind(1)
    await yard.redriver().look()
    (run,) = await yard.lab.rows("select * from automation.live_runs")
    assert (run["input"], run["partition_key"], run["stale_at"]) == ('{"lane":"b", "n":1.10}', "b", None)
    assert (run["operation_version"], run["event_id"]) == (2, old.id)


async def test_a_cloudevent_whose_attributes_stood_in_headers_keeps_them_and_runs_again(yard: Yard) -> None:
    await yard.stage.catalog.publish(PROJECT, {"ageing.yaml": AGEING}, dev=False, actor="test")
    headers = (
        ("ce_specversion", b"1.0"), ("ce_type", b"order.fresh"), ("ce_id", b"7"), ("ce_source", b"/shop"),
        ("ce_time", b"2026-01-01T00:00:00Z"), ("a44-project", PROJECT.encode()), ("content-type", b"application/json"),
    )  # fmt: skip
    plain = yard.topic.record(b'{"lane":"b", "n":1.10}')
    await yard.stage.ingest([msgspec.structs.replace(plain, headers=headers, key=b"a-key")])
    (row,) = await yard.lab.rows("select * from automation.dead_letters")
    assert (row["error_code"], bytes(row["raw"]), bytes(row["record_key"])) == (
        "E_EVENT_TOO_OLD",
        plain.value,
        b"a-key",
    )
    told = [(name, base64.b64decode(value or "")) for name, value in headers_of(row["record_headers"])]
    assert told == list(headers)
    again = Record("t", 0, 0, bytes(row["record_key"]), bytes(row["raw"]), tuple(told), 0)
    assert decode_record(again) == decode_envelope(row["envelope"].encode())
    await yard.redrives.start(yard.order([row["dead_letter_id"]], allow_stale=True))
    await yard.wind(1)
    await yard.redriver().look()
    (run,) = await yard.lab.rows("select * from automation.live_runs")
    assert (run["input"], run["partition_key"], run["operation_version"]) == ('{"lane":"b", "n":1.10}', "b", 2)


@pytest.mark.parametrize("is_there", [True, False])
async def test_data_in_storage_is_read_where_a_trigger_computes_a_key_from_it(
    yard: Yard, tmp_path: Path, is_there: bool
) -> None:
    await yard.stage.catalog.publish(PROJECT, {"ageing.yaml": AGEING}, dev=False, actor="test")
    storage = open_storage(f"file://{tmp_path}")
    body = too_large_to_travel(PROJECT, json.dumps({"lane": "b", "text": "x" * 300_000}), datetime.now(UTC))
    assert body is not None
    await storage.put(body)
    stale = referring(yard.topic.event(type="order.fresh", occurred_at="2026-01-01T00:00:00Z"), body)
    reading = Ingest(yard.stage.log, CurrentCatalog(yard.stage.catalog), yard.stage.told, None, storage)
    await reading([yard.topic.record(encode_envelope(stale))])
    (letter,) = await yard.redrives.candidates(PROJECT, "ingest", whole=True, after=None, limit=9)
    assert letter.reason == "event_too_old"
    assert await yard.lab.schedule().kept_bodies([body.reference]) == [body.reference]  # no run refers to it yet
    if not is_there:
        await storage.remove([body.reference])
    await yard.redrives.start(yard.order([letter.dead_letter_id], allow_stale=True))
    await yard.wind(1)
    await yard.redriver(storage).look()
    runs = await yard.lab.rows("select partition_key, lane, input_ref from automation.live_runs")
    if is_there:
        assert [(run["partition_key"], run["input_ref"]) for run in runs] == [("b", str(body.reference))]
    else:
        assert runs == []
        (said,) = await yard.lab.column("select details from automation.audit_log where action like '%%not_redriven'")
        assert json.loads(said)["error_code"] == "E_STORED_BODY_MISSING"


class Away:
    """A storage that is out of reach."""

    async def get(self, reference: Reference) -> bytes:
        raise Unavailable("E_STORAGE_UNAVAILABLE", f"{reference} cannot be read now")


async def test_while_the_storage_is_away_its_letter_waits_and_other_orders_go_on(yard: Yard) -> None:
    await yard.take(2)
    letters = await yard.die()
    kept = decode_envelope((await yard.lab.value("select envelope from automation.dead_letters limit 1")).encode())
    body = StoredBody(Reference("20260719", PROJECT, "0f" * 32), b"{}")
    away = envelope_text(referring(kept, body))
    change = "update automation.dead_letters set envelope = %s where dead_letter_id = %s"
    await yard.lab.rows(change, away, letters[0])
    for letter in letters:
        await yard.redrives.start(yard.order([letter], rate=100))
        yard.topic.millis += 1
    await yard.wind(1)
    await yard.redriver(Away()).look()  # type: ignore[arg-type]
    assert await yard.lab.column("select redriven + refused from automation.redrives order by redrive_id") == [0, 1]
    assert len(await yard.redrives.due()) == 1


async def test_the_scheduler_redrives_whoever_gave_the_order(yard: Yard) -> None:
    await yard.take(3)
    letters = await yard.die()
    told = Told()
    scheduler = Scheduler(yard.lab.schedule(), told, yard.measures, yard.redriver())
    stop = asyncio.Event()
    running = asyncio.create_task(scheduler.run(stop))
    await yard.redrives.start(yard.order(letters, rate=100))

    async def are_done() -> bool:
        return bool(await yard.lab.value("select count(*) = 3 from automation.live_runs"))

    await until(are_done, "the letters are redriven", 20)
    stop.set()
    await running
    assert len(told.grants) == 3
    assert not (await yard.lab.schedule().look()).redrives
