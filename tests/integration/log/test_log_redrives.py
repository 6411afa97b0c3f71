"""Redrives on the real log: each letter once, as the next version of its operation, at its pace, under a name."""

import asyncio
import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from processors.ports.streams import Record
from processors.runtime.current_catalog import CurrentCatalog
from processors.runtime.redriving import step_of
from processors.scheduler.scheduler import Scheduler
from schemas.envelope import decode_envelope, encode_envelope
from schemas.errors import Refused
from schemas.framing import decode_record
from schemas.ids import redrive_id
from schemas.kept_records import headers_of
from tests.integration.log.lab import PROJECT
from tests.integration.log.polls import Told
from tests.integration.log.yard import AGEING, QUEUE, Yard
from tests.support.waiting import until


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
    done, spent = await yard.look()  # at once
    assert done <= min(int(spent * 20), 20)
    await yard.wind(0.525)
    done, spent = await yard.look()
    assert 10 <= done <= min(int(spent * 20), 20)
    done, spent = await yard.look()  # at once: nothing but what the time since then gave
    assert done <= min(int(spent * 20), 20)
    await yard.wind(3600)
    assert (await yard.look())[0] == 20
    done, spent = await yard.look()  # and nothing is left over from the pause
    assert spent < 1800
    assert done <= min(int(spent * 20), 20)
    order = await yard.lab.column("select dead_letter_id from automation.redrive_letters where done_at is not null")
    assert set(order) == set(letters[: await yard.redriven()])


async def test_slow_rates_move_too(yard: Yard) -> None:
    await yard.take(2)
    await yard.redrives.start(yard.order(await yard.die(), rate=1 / 60))
    await yard.wind(10)  # fifty more would have to pass
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
    other = replace(yard.order(letters[4:], rate=0.125, cap=50), project_id="other")
    assert (await yard.redrives.start(other)).rate == 0.125  # somebody else's cap is not touched
    await yard.wind(9)
    await yard.redriver().look()
    assert await yard.lab.column("select redriven from automation.redrives order by rate") == [1, 2, 2]
    assert (await yard.redrives.start(yard.order(letters[4:], rate=50, cap=50))).letters == 0  # they are in one already


async def test_a_cap_of_the_projects_own_stands_before_the_installations(yard: Yard) -> None:
    await yard.take(3)
    letters = await yard.die()
    await yard.lab.rows("insert into automation.projects (project_id, redrive_rate) values (%s, 5)", PROJECT)
    assert await yard.redrives.own_cap(PROJECT) == 5
    assert (await yard.redrives.start(yard.order(letters[:1], rate=20, cap=50))).rate == 5
    with pytest.raises(Refused, match="whole rate of 5 letters") as refused:
        await yard.redrives.start(yard.order(letters[1:], rate=20, cap=50))
    assert refused.value.code == "E_REDRIVE_RATE"
    await yard.lab.rows("update automation.projects set redrive_rate = 70")
    assert (await yard.redrives.start(yard.order(letters[1:], rate=100, cap=50))).rate == 65


async def test_an_order_that_is_stopped_keeps_what_it_has_done_and_frees_the_rest(yard: Yard) -> None:
    many = 60
    await yard.take(many)
    letters = await yard.die()
    order = yard.order(letters, rate=4)
    await yard.redrives.start(order)
    await yard.wind(1)
    done, spent = await yard.look()
    assert 4 <= done <= 4 * spent < many
    stopped = await yard.redrives.stop(PROJECT, order.redrive_id, "tok_jo", "the partner is away again")
    assert stopped is not None
    assert (stopped.state, stopped.redriven, stopped.waiting) == ("stopped", done, 0)
    assert (stopped.stopped_by, stopped.stop_reason, stopped.operator) == (
        "tok_jo", "the partner is away again", "tok_maria",
    )  # fmt: skip
    await yard.wind(3600)
    assert await yard.redrives.due() == []
    (said,) = await yard.lab.rows(
        "select actor, subject, details from automation.audit_log where action = 'redrive.stop'"
    )
    assert (said["actor"], said["subject"]) == ("tok_jo", order.redrive_id)
    assert json.loads(said["details"]) == {
        "reason": "the partner is away again", "redriven": done, "refused": 0, "freed": many - done,
    }  # fmt: skip
    assert await yard.redrives.stop(PROJECT, order.redrive_id, "tok_li", "again") == stopped
    assert await yard.lab.value("select count(*)::int from automation.audit_log where action = 'redrive.stop'") == 1
    assert (await yard.redrives.start(yard.order(letters))).letters == many - done  # another order may have them
    assert await yard.redrives.stop("other", order.redrive_id, "tok_jo", "") is None


async def test_a_step_that_was_on_its_way_when_the_order_was_stopped_changes_nothing(yard: Yard) -> None:
    await yard.take(3)
    order = yard.order(await yard.die(), rate=100)
    await yard.redrives.start(order)
    await yard.wind(1)
    (due,) = await yard.redrives.due()
    waiting = await yard.redrives.waiting(due)
    step = await step_of(await CurrentCatalog(yard.stage.catalog).get(), due, waiting, yard.redriver()._stored)
    assert len(step.redriven) == 3
    await yard.redrives.stop(PROJECT, order.redrive_id, "tok_jo", "")
    assert await yard.redrives.commit(step) == []
    assert await yard.lab.rows("select from automation.live_runs") == []
    assert await yard.redriven() == 0


async def test_orders_are_listed_newest_first_with_their_progress(yard: Yard) -> None:
    await yard.take(4)
    letters = await yard.die()
    made = []
    for number, some in enumerate((letters[:2], letters[2:3], letters[3:])):
        made.append(replace(yard.order(some, rate=1), redrive_id=redrive_id(yard.topic.millis + number)))
        await yard.redrives.start(made[-1])
    await yard.redrives.stop(PROJECT, made[2].redrive_id, "tok_jo", "")
    await yard.lab.rows("update automation.redrives set redriven = 1, ended_at = now() where redrive_id = %s",
                        made[1].redrive_id)  # fmt: skip

    async def listed(**wanted: Any) -> list[tuple[str, str, int]]:
        found = await yard.redrives.orders(PROJECT, **{"under_way": False, "after": None, "limit": 9, **wanted})
        return [(one.redrive_id, one.state, one.waiting) for one in found]

    third, second, first = (
        (made[2].redrive_id, "stopped", 0),
        (made[1].redrive_id, "done", 0),
        (made[0].redrive_id, "under_way", 2),
    )
    assert await listed() == [third, second, first]
    assert await listed(limit=1, after=third[0]) == [second]
    assert await listed(under_way=True) == [first]
    assert await yard.redrives.orders("other", under_way=False, after=None, limit=9) == []


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


FAILING = """
triggers:
  - {id: trg_big, type: event, event: order.big, filter: "%s", workflow: wf_orders}
"""


@pytest.mark.parametrize(
    ("mended", "code"),
    [("int(data.amount) > 10", None), ("int(data.amount) > 1000", "filtered"), ("data.amount > 11", "E_FILTER_ERROR"),
     (None, "E_TRIGGER_NOT_FOUND")],
)  # fmt: skip
async def test_a_letter_over_which_a_filter_had_failed_is_asked_again_by_the_filter_of_now(
    yard: Yard, mended: str | None, code: str | None
) -> None:
    await yard.stage.catalog.publish(PROJECT, {"big.yaml": FAILING % "data.amount > 10"}, dev=False, actor="test")
    await yard.stage.ingest([yard.topic.direct(type="order.big", data='{"lane":"b","amount":"20"}')])
    (letter,) = await yard.redrives.candidates(PROJECT, "ingest", whole=True, after=None, limit=9)
    assert letter.error_code == "E_FILTER_ERROR"
    mend = FAILING.replace("trg_big", "trg_other") % "true" if mended is None else FAILING % mended
    if mended is None:
        await yard.lab.rows("delete from automation.triggers where trigger_id = 'trg_big'")
    await yard.stage.catalog.publish(PROJECT, {"big.yaml": mend}, dev=False, actor="test")
    await yard.redrive([letter.dead_letter_id])
    assert await yard.lab.value("select count(*)::int from automation.live_runs") == (1 if code is None else 0)
    (order,) = await yard.lab.rows("select redriven, refused from automation.redrives")
    assert (order["redriven"], order["refused"]) == ((1, 0) if code is None else (0, 1))
    if code is not None:
        (said,) = await yard.lab.column("select details from automation.audit_log where action like '%%not_redriven'")
        assert json.loads(said)["error_code"] == code


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
