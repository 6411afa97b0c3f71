"""Whatever JSON a sender writes comes back from the API letter for letter, by whichever way it came in; what cannot be
kept is refused with the code of its fault, and leaves nothing.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from processors.adapters.postgres.catalog import PostgresCatalog
from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.ingest_log import PostgresIngestLog
from processors.ingest.ingest import Ingest
from processors.ports.runs import Grant
from processors.ports.streams import Record
from processors.runtime.current_catalog import CurrentCatalog
from schemas.framing import Headers
from schemas.relay_numbers import sealed
from schemas.strict_json import MAX_DEPTH, MAX_DIGITS
from tests.integration.gateway.conftest import PROJECT, Answer, Gateway

JSON = {"Content-Type": "application/json"}
TYPE = "billing.invoice.finalized"
UNSTORABLE, TWICE, INVALID = "E_BODY_UNSTORABLE", "E_DUPLICATE_KEY", "E_JSON_INVALID"

# texts, not values: what is compared is what was written

NUMBERS = (
    st.integers().map(str)
    | st.integers(min_value=0, max_value=10**MAX_DIGITS - 1).map(str)
    | st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
    | st.sampled_from(["1.0", "-0", "-0.0", "1E2", "9007199254740993", "3544790567247868102", "1e308", "1e-400"])
)
PIECES = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\') | st.sampled_from(
    [
        r"\n",
        r"\"",
        r"\\",
        r"\/",
        r"\u00e9",
        r"\u0001",
        r"\u001B",
        r"\ud83d\ude00",
        r"\\u0000",
        r"\\ud800",
        "\x7f",
        "\x85",
    ]
)
STRINGS = st.lists(PIECES, max_size=8).map(lambda pieces: '"' + "".join(pieces) + '"')
SPACES = st.sampled_from(["", " ", "\n\t", "\r\n"])


def array(items: Sequence[str], space: str) -> str:
    return "[" + space + f"{space},".join(items) + space + "]"


def object_of(members: Sequence[tuple[str, str]], space: str) -> str:
    return "{" + space + f",{space}".join(f"{key}{space}:{value}" for key, value in members) + "}"


GOOD = st.recursive(
    NUMBERS | STRINGS | st.sampled_from(["null", "true", "false"]),
    lambda inner: (
        st.builds(array, st.lists(inner, max_size=4), SPACES)
        | st.builds(
            object_of,
            st.lists(st.tuples(STRINGS, inner), max_size=4, unique_by=lambda member: str(json.loads(member[0]))),
            SPACES,
        )
    ),
    max_leaves=12,
)
FAULTS = [
    (r'"x\u0000y"', UNSTORABLE),
    (r'"\ud800"', UNSTORABLE),
    (r'{"\udfff\ud800": 1}', UNSTORABLE),
    (r'{"a": 1, "\u0061": 2}', TWICE),
    ('{"qty": 1, "qty": -1}', TWICE),
    ("NaN", INVALID),
    ("-Infinity", INVALID),
    ("1e400", INVALID),
    ("9" * (MAX_DIGITS + 1), INVALID),
    ("01", INVALID),
    ("[1,]", INVALID),
    ("'a'", INVALID),
    ('"a\x01b"', INVALID),
    ('"\\x41"', INVALID),
    ("\ufeff1", INVALID),
]


class Sent(NamedTuple):
    """A text, and the code of what is wrong with it."""

    text: str
    code: str | None


BAD = st.builds(
    lambda fault, beside, form: (
        Sent(form % fault[0] if "%s" in form else fault[0], fault[1])
        if not beside
        else Sent(array([beside, fault[0]], " "), fault[1])
    ),
    st.sampled_from(FAULTS),
    st.none() | GOOD,
    st.sampled_from(["%s", '{"deep": [[%s]]}']),
)
SENT = st.lists(GOOD.map(lambda text: Sent(text, None)) | BAD, min_size=8, max_size=24)


class Silent:
    def granted(self, grants: Sequence[Grant]) -> None:
        """Nobody listens."""


class Whole:
    """Gateway and ingest on one log; `numbers` gives each event a key of its own."""

    def __init__(self, gateway: Gateway, secret: str, log: PostgresIngestLog, ingest: Ingest) -> None:
        self.gateway = gateway
        self._secret = secret
        self._log = log
        self._ingest = ingest
        self.numbers = itertools.count(1)
        self._offset = self._number = 0
        self._published = (0, 0)

    async def by_webhook(self, text: str) -> Answer:
        return await self.gateway.hook(self._secret, text.encode(), key=f"w{next(self.numbers)}")

    async def by_event(self, text: str) -> Answer:
        body = f'{{"type":"{TYPE}","idempotency_key":"e{next(self.numbers)}","data":{text}}}'
        return await self.gateway.call("POST", "/v1/automation/events", data=body.encode(), headers=JSON)

    async def by_hand(self, text: str) -> Answer:
        headers = {**JSON, "A44-Idempotency-Key": f"m{next(self.numbers)}"}
        path = "/v1/automation/workflows/wf_invoice_settle/runs"
        return await self.gateway.call("POST", path, data=f'{{"input":{text}}}'.encode(), headers=headers)

    async def ingested(self) -> None:
        """What the doors have announced since the last time."""
        rows = await self.gateway.rows(
            "select xid::text::bigint as xid, id, value from automation.outbox where topic = 'a44.events.v1'"
            " and (xid, id) > (%s::text::xid8, %s) order by automation.outbox.xid, id",
            *self._published,
        )
        if rows:
            self._published = (rows[-1]["xid"], rows[-1]["id"])
            await self.read([bytes(row["value"]) for row in rows], relayed=True)

    async def read(self, values: Sequence[bytes], *, relayed: bool = False) -> list[Record]:
        """Ingest takes records with these values."""
        records = []
        for value in values:
            headers: Headers = ()
            if relayed:
                self._number += 1
                headers = sealed(self._log.seal_key(), "events", 0, self._number, value)
            records.append(Record("events", 0, self._offset, b"k", value, headers, 0))
            self._offset += 1
        await self._ingest(records)
        return records

    async def input_of(self, run_id: str) -> str:
        """As it stands in the answer."""
        headers = {"Authorization": f"Bearer {self.gateway.token}"}
        async with self.gateway.session.get(f"{self.gateway.url}/v1/automation/runs/{run_id}", headers=headers) as got:
            assert got.status == 200
            return bytes(msgspec.json.decode(await got.read(), type=Shown).input).decode()

    async def run_of(self, event_id: str) -> str:
        found = await self.gateway.call("GET", f"/v1/automation/events/{event_id}")
        (run,) = found.body["runs"]
        return str(run["run_id"])


class Shown(msgspec.Struct):
    input: msgspec.Raw


@pytest.fixture
async def whole(gateway: Gateway, secret: str) -> AsyncIterator[Whole]:
    async with open_pool(gateway.dsn, "test") as pool:
        log = PostgresIngestLog(gateway.dsn, "dead", 86_400.0)
        await log.positions("events", "topic-1", [0])
        try:
            yield Whole(gateway, secret, log, Ingest(log, CurrentCatalog(PostgresCatalog(pool)), Silent()))
        finally:
            await log.aclose()


def envelope(number: int, text: str) -> bytes:
    told = {"id": f"direct-{number}", "type": TYPE, "idempotency_key": f"d{number}", "partition_key": "p"}
    told |= {"occurred_at": "2026-07-19T14:02:11Z", "project_id": PROJECT}
    return json.dumps(told).encode()[:-1] + b',"data":' + text.encode() + b"}"


few = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("door", [Whole.by_webhook, Whole.by_event, Whole.by_hand])
@few
@given(batch=SENT)
async def test_any_json_through_a_door_comes_back_as_it_was_written_or_is_refused(
    whole: Whole, door: Callable[[Whole, str], Awaitable[Answer]], batch: Sequence[Sent]
) -> None:
    answers = await asyncio.gather(*(door(whole, sent.text) for sent in batch))
    for sent, answer in zip(batch, answers, strict=True):
        assert (answer.status, answer.body.get("code")) == ((202, None) if sent.code is None else (422, sent.code)), (
            sent
        )
    await whole.ingested()
    for sent, answer in zip(batch, answers, strict=True):
        if sent.code is None:
            run = answer.body.get("run_id") or await whole.run_of(answer.body["event_id"])
            assert await whole.input_of(run) == sent.text


@few
@given(batch=SENT)
async def test_any_json_on_the_topic_comes_back_as_it_was_written_or_is_a_dead_letter(
    whole: Whole, batch: Sequence[Sent]
) -> None:
    numbers = [next(whole.numbers) for _ in batch]
    records = await whole.read([envelope(number, sent.text) for number, sent in zip(numbers, batch, strict=True)])
    rows = await whole.gateway.rows("select source_offset, error_code, raw from automation.dead_letters")
    letters = {row["source_offset"]: (row["error_code"], bytes(row["raw"])) for row in rows}
    for sent, number, record in zip(batch, numbers, records, strict=True):
        if sent.code is None:
            assert await whole.input_of(await whole.run_of(f"direct-{number}")) == sent.text
        else:
            assert letters[record.offset] == ("E_ENVELOPE_INVALID", record.value)


@pytest.mark.parametrize(
    ("door", "around"), [(Whole.by_webhook, 0), (Whole.by_event, 1), (Whole.by_hand, 1)], ids=["hook", "event", "hand"]
)
async def test_nesting_goes_as_deep_as_is_said_and_no_deeper(
    whole: Whole, door: Callable[[Whole, str], Awaitable[Answer]], around: int
) -> None:
    """Counted with the object that it is sent in."""
    deepest = MAX_DEPTH - around
    texts = ["[" * depth + "]" * depth for depth in (deepest, deepest + 1)]
    taken, refused = [await door(whole, text) for text in texts]
    assert (taken.status, refused.status, refused.code) == (202, 422, INVALID)
    await whole.ingested()
    run = taken.body.get("run_id") or await whole.run_of(taken.body["event_id"])
    assert await whole.input_of(run) == texts[0]
