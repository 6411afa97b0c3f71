"""Whatever a producer writes has one fate that can be named: a run, a counter or a dead letter. The sums agree."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from processors.ingest.ingest import Ingest
from processors.ports.ingest import DeadRecord
from processors.ports.runs import Grant
from processors.ports.streams import Record
from processors.runtime.current_catalog import CurrentCatalog
from schemas.envelope import decode_envelope, encode_envelope
from schemas.framing import Headers
from schemas.relay_numbers import SEAL_HEADER, SEQ_HEADER
from tests.conformance_of_ports.logs import MemoryLog
from tests.simulation.memory.tables import Queue, Tables
from tests.unit.gateway.catalogs import PROJECT, snapshot_of

OUTCOMES = ("created", "deduplicated", "conflict", "filtered")
Written = tuple[bytes | None, bytes | None, Headers]
TOPIC, MILLIS = "events", 1_784_500_000_000
FILES = {
    "settle.yaml": """\
name: settle
version: 1
trigger: { event: order.paid, filter: "data.amount > 10" }
steps:
  - { id: pay, uses: sql/execute, timeout: 5s, query: "select 1" }
""",
    "events.yaml": """\
events:
  - type: order.lost
    schema: { type: object, required: [amount], properties: { amount: { anyOf: [{ minimum: 5 }, { type: string }] } } }
""",
}
GOOD: Mapping[str, Any] = {
    "id": "order-1",
    "type": "order.paid",
    "idempotency_key": "order:1",
    "partition_key": "p",
    "occurred_at": "2026-07-19T14:02:11Z",
    "project_id": PROJECT,
    "data": {"amount": 100},
}


class Published:
    async def version(self) -> int:
        return 1

    async def snapshot(self) -> Any:
        return snapshot_of(FILES)


class Silent:
    def granted(self, grants: Sequence[Grant]) -> None: ...


class Stage:
    """An ingest on the log in memory."""

    def __init__(self, log: Any, tables: Tables) -> None:
        self.ingest = Ingest(log, CurrentCatalog(Published()), Silent())  # type: ignore[arg-type]
        self.tables = tables

    def counted(self, name: str) -> float:
        return self.ingest.measures.value(name)

    def counted_by(self, name: str, label: str) -> float:
        return self.ingest.measures.value(name, label)

    @property
    def letters(self) -> list[DeadRecord]:
        return sorted(self.tables.dead_letters.values(), key=lambda one: one.offset)

    @property
    def codes(self) -> list[str]:
        return [one.error_code for one in self.letters]


async def staged() -> Stage:
    log = MemoryLog()
    log.database.tables.queues[PROJECT, "q_default"] = Queue(100, ordered=False, max_attempts=5)
    ingest_log = await log.ingest_log()
    await ingest_log.positions(TOPIC, "topic-1", [0])
    return Stage(ingest_log, log.database.tables)


def event(**changes: Any) -> bytes:
    fields = {**GOOD, **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


def record(offset: int, value: bytes | None, key: bytes | None = b"p", headers: Headers = ()) -> Record:
    return Record(TOPIC, 0, offset, key, value, headers, MILLIS)


# the named outcomes


async def test_d14_a_tombstone_is_a_dead_letter_with_its_own_code_and_the_next_record_is_read() -> None:
    stage = await staged()
    await stage.ingest([record(0, None), record(1, event()), record(2, None, key=None)])
    assert stage.codes == ["E_TOMBSTONE", "E_TOMBSTONE"]
    assert [(one.raw, one.offset, one.reason) for one in stage.letters] == [
        (None, 0, "undecodable"),
        (None, 2, "undecodable"),
    ]
    assert len(stage.tables.live) == 1


async def test_an_event_that_does_not_fit_its_schema_is_a_dead_letter_whoever_wanted_it() -> None:
    stage = await staged()
    await stage.ingest([record(0, event(type="order.lost", data={"amount": 1})), record(1, event())])
    assert stage.codes == ["E_EVENT_SCHEMA"]
    assert len(stage.tables.live) == 1


async def test_d14_an_empty_value_is_no_tombstone() -> None:
    stage = await staged()
    await stage.ingest([record(0, b"")])
    assert stage.codes == ["E_ENVELOPE_INVALID"]


@pytest.mark.parametrize("key", [b"\xff\xfe", b"\x00", b"", None, b"x" * 5000])
async def test_d14_a_key_that_is_no_text_is_no_fault_of_the_event(key: bytes | None) -> None:
    stage = await staged()
    await stage.ingest([record(0, event(), key=key)])
    assert [one.run.partition_key for one in stage.tables.live.values()] == ["p"]
    assert stage.letters == []


@pytest.mark.parametrize(
    "headers",
    [
        ((SEQ_HEADER, b"many"),),
        ((SEQ_HEADER, b"\xff\xfe"),),
        ((SEQ_HEADER, None),),
        ((SEQ_HEADER, b"-1"),),
        (("\\xff\\xfe", b"y"), ("", b""), ("x", None), ("x", b"\x00\xff")),
        tuple((f"h{n}", b"v") for n in range(1000)),
    ],
)
async def test_d14_headers_that_mean_nothing_here_are_no_fault_of_the_event(headers: Headers) -> None:
    stage = await staged()
    await stage.ingest([record(0, event(), headers=headers)])
    assert len(stage.tables.live) == 1
    assert stage.letters == []


async def test_a_cloudevent_makes_its_run_and_one_that_is_broken_is_a_dead_letter_with_its_bytes() -> None:
    stage = await staged()
    told = {"specversion": "1.0", "type": "order.paid", "source": "/orders", "id": "7", "project": PROJECT}
    headers = tuple((f"ce_{name}", text.encode()) for name, text in told.items())
    data = b'{"amount": 100}'
    whole = json.dumps({**told, "id": "8", "data": {"amount": 11}}).encode()
    structured: Headers = (("content-type", b"application/cloudevents+json"),)
    poll = [
        record(0, data, headers=headers),
        record(1, whole, headers=structured),
        record(2, data, headers=headers[1:]),
    ]
    await stage.ingest([*poll, record(3, b"{}", headers=headers[:3])])
    assert sorted(one.run.input for one in stage.tables.live.values()) == ['{"amount": 100}', '{"amount": 11}']
    assert stage.codes == ["E_ENVELOPE_INVALID", "E_CLOUDEVENT_INVALID"]
    assert [one.raw for one in stage.letters] == [data, b"{}"]


# the four answers of the doors, for records that came by none


async def told(stage: Stage, *values: bytes) -> dict[str, float]:
    before = {outcome: stage.counted_by("direct_records_total", outcome) for outcome in OUTCOMES}
    offset = stage.tables.progress[TOPIC, 0].next_offset if stage.tables.progress else 0
    await stage.ingest([record(offset + at, value) for at, value in enumerate(values)])
    after = {outcome: stage.counted_by("direct_records_total", outcome) - before[outcome] for outcome in OUTCOMES}
    return {outcome: count for outcome, count in after.items() if count}


async def test_direct_records_have_the_four_outcomes_of_the_doors() -> None:
    stage = await staged()
    assert await told(stage, event()) == {"created": 1}
    assert await told(stage, event(), event(id="order-2")) == {"deduplicated": 2}
    assert await told(stage, event(id="order-3", data={"amount": 900})) == {"conflict": 1}
    assert await told(stage, event(id="order-4", idempotency_key="k", data={"amount": 1})) == {"filtered": 1}
    assert await told(stage, event(id="order-5", idempotency_key="o", type="nobody.asked")) == {"created": 1}
    assert len(stage.tables.live) == 1


@pytest.mark.parametrize("is_one_poll", [True, False])
async def test_b01_a_direct_record_with_another_body_is_a_conflict_though_it_has_the_same_id(is_one_poll: bool) -> None:
    stage = await staged()
    values = [event(), event(data={"amount": 900}, operation_version=2)]
    with capture_logs() as logs:
        polls = [values] if is_one_poll else [[value] for value in values]
        outcomes = [await told(stage, *poll) for poll in polls]
    assert {name: count for one in outcomes for name, count in one.items()} == {"created": 1, "conflict": 1}
    assert [live.run.input for live in stage.tables.live.values()] == ['{"amount": 100}']
    assert [(one.error_code, one.raw) for one in stage.letters] == [("E_IDEMPOTENCY_CONFLICT", values[1])]
    (line,) = [one for one in logs if one["event"] == "idempotency_conflict"]
    assert (line["first_body"], line["this_body"]) == tuple(
        sha256(text).hexdigest() for text in (b'{"amount": 100}', b'{"amount": 900}')
    )
    assert (line["project_id"], line["idempotency_key"], line["dead_letter_id"]) == (
        PROJECT,
        "order:1",
        stage.letters[0].dead_letter_id,
    )


async def test_b10_a_hundred_records_of_one_new_key_make_one_run() -> None:
    stage = await staged()
    assert await told(stage, *(event(id=f"order-{n}") for n in range(100))) == {"created": 1, "deduplicated": 99}
    assert len(stage.tables.live) == 1


async def test_a_refused_record_makes_no_run_of_a_later_one_that_bears_the_same_id() -> None:
    """The key of the first belongs to another event: it is a conflict. That of the second is its own."""
    stage = await staged()
    assert await told(stage, event()) == {"created": 1}
    conflict = event(id="order-2", data={"amount": 900})
    accepted = event(id="order-2", data={"amount": 700}, idempotency_key="order:2")
    assert await told(stage, conflict, accepted) == {"conflict": 1, "created": 1}
    assert [one.run.input for one in stage.tables.live.values()] == ['{"amount": 100}', '{"amount": 700}']
    assert [one.raw for one in stage.letters] == [conflict]


NAMED = st.builds(
    lambda project, name, key, amount: event(project_id=project, id=name, idempotency_key=key, data={"amount": amount}),
    st.sampled_from([PROJECT, "other"]),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from([1, 100, "much"]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(NAMED, min_size=2, max_size=8))
async def test_what_records_come_to_does_not_depend_on_how_they_were_polled(values: list[bytes]) -> None:
    at_once, by_itself = await staged(), await staged()
    first = await told(at_once, *values)
    each = [await told(by_itself, value) for value in values]
    assert first == {name: sum(one.get(name, 0) for one in each) for name in {name for one in each for name in one}}
    runs, others = (
        [(one.run.event_id, one.run.idempotency_key, one.run.input) for one in stage.tables.live.values()]
        for stage in (at_once, by_itself)
    )
    assert runs == others
    assert [(one.error_code, one.raw) for one in at_once.letters] == [
        (one.error_code, one.raw) for one in by_itself.letters
    ]


# whatever it is

TEXTS = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b", "c"]) | TEXTS,
        "type": st.sampled_from(["order.paid", "order.lost"]) | JSON,
        "idempotency_key": st.sampled_from(["a", "b"]) | JSON,
        "partition_key": JSON,
        "occurred_at": JSON,
        "project_id": st.sampled_from([PROJECT, "other", ...]),
        "trigger_id": st.sampled_from(["trg_settle", "trg_nobody"]),
        "data": st.fixed_dictionaries({"amount": st.integers(0, 20) | TEXTS | st.floats()}) | JSON,
        "operation_version": st.integers(),
    },
).map(lambda changes: event(**changes))


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """An event as Avro, with some bytes of it changed."""
    value = bytearray(encode_envelope(decode_envelope(event())))
    for _ in range(draw(st.integers(0, 3))):
        value[draw(st.integers(0, len(value) - 1))] = draw(st.integers(0, 255))
    return bytes(value[: draw(st.integers(0, len(value)))]) if draw(st.booleans()) else bytes(value)


VALUES = (
    st.none()
    | st.binary(max_size=80)
    | st.just(event())
    | EVENTS
    | broken()
    | JSON.map(lambda value: json.dumps(value).encode())
)
NAMES = TEXTS | st.sampled_from(
    ["content-type", "ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time", "a44-project"]
)
MEANT = st.sampled_from([b"1.0", b"application/json", b"application/cloudevents+json", b"order.paid", PROJECT.encode()])
HEADERS = st.lists(
    st.tuples(NAMES, MEANT | st.binary(max_size=12) | st.none())
    | st.tuples(st.just(SEQ_HEADER), st.none() | st.sampled_from([b"", b"x", b"-7", b"1", b"7", b"9" * 17, b"9" * 30]))
    | st.tuples(st.just(SEAL_HEADER), st.none() | st.sampled_from([b"", b"0" * 32]) | st.binary(max_size=40)),
    max_size=8,
).map(tuple)
WRITTEN = st.tuples(VALUES, st.none() | st.binary(max_size=12), HEADERS)


@settings(max_examples=200, deadline=None)
@given(WRITTEN)
async def test_any_record_is_a_run_a_counter_or_a_dead_letter(
    written: tuple[bytes | None, bytes | None, Headers],
) -> None:
    stage = await staged()
    await stage.ingest([record(0, *written)])
    counted = stage.counted("events_unmatched_total") + stage.counted("events_filtered_total")
    assert len(stage.tables.live) + len(stage.letters) + counted == 1
    assert all(one.error_code.startswith("E_") and one.raw == written[0] for one in stage.letters)


@settings(max_examples=100, deadline=None)
@given(st.lists(WRITTEN, min_size=1, max_size=8))
async def test_the_sums_of_a_poll_agree_and_a_second_reading_adds_nothing(
    written: list[Written],
) -> None:
    stage = await staged()
    poll = [record(at, *one) for at, one in enumerate(written)]
    await stage.ingest(poll)
    assert stage.tables.progress[TOPIC, 0].next_offset == len(poll)
    untaken = [one for one in stage.letters if one.reason == "undecodable" or one.error_code == "E_EVENT_SCHEMA"]
    assert len(poll) == len(untaken) + stage.counted("events_taken_total")
    refused = sum(stage.counted_by("records_refused_total", code) for code in set(stage.codes))
    assert len(stage.letters) == refused
    outcomes = sum(stage.counted_by("direct_records_total", outcome) for outcome in OUTCOMES)
    assert outcomes == stage.counted("events_taken_total")
    assert stage.counted_by("direct_records_total", "conflict") == stage.codes.count("E_IDEMPOTENCY_CONFLICT")
    first = stage.counted_by("direct_records_total", "created") + stage.counted_by("direct_records_total", "filtered")
    assert len(stage.tables.inbox) == first
    assert len(stage.tables.live) <= stage.counted("event_runs_total")
    before = {**stage.tables.live}, {**stage.tables.dead_letters}
    known = sum(stage.counted_by("direct_records_total", outcome) for outcome in ("deduplicated", "conflict"))
    await stage.ingest(poll)
    assert (stage.tables.live, stage.tables.dead_letters) == before
    again = sum(stage.counted_by("direct_records_total", outcome) for outcome in ("deduplicated", "conflict"))
    assert again - known == outcomes
