"""Bodies over 256 KB are in storage before anything refers to them; smaller ones, and all without storage, travel."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from processors.adapters.objects.storage import ObjectStorage, open_storage
from schemas.envelope import Envelope, decode_envelope
from schemas.stored_bodies import parsed
from tests.integration.gateway.conftest import WORKFLOW, Answer, Gateway

INLINE, MOST = 262_144, 1_000_000
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bodies"


@pytest.fixture
def storage(folder: Path) -> ObjectStorage:
    return open_storage(f"file://{folder}")


def text(size: int) -> bytes:
    return b'"' + b"x" * (size - 2) + b'"'


def event(size: int, key: str = "k1") -> bytes:
    """An event with data of this size."""
    return b'{"type":"order.paid","idempotency_key":"' + key.encode() + b'","data":' + text(size) + b"}"


async def published(gateway: Gateway) -> list[Envelope]:
    rows = await gateway.rows("select value from automation.outbox order by xid, id")
    return [decode_envelope(bytes(row["value"])) for row in rows]


def put_into(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def test_a20_at_256_kb_a_webhook_travels_whole_and_one_byte_more_refers_to_storage(
    gateway: Gateway, secret: str, folder: Path, storage: ObjectStorage
) -> None:
    assert (await gateway.hook(secret, text(INLINE))).status == 202
    assert put_into(folder) == []
    assert (await gateway.hook(secret, text(INLINE + 1))).status == 202
    whole, carried = await published(gateway)
    assert (whole.data, whole.data_ref) == (text(INLINE).decode(), None)
    assert (carried.data, carried.data_size) == ("null", INLINE + 1)
    assert carried.data_sha256 == hashlib.sha256(text(INLINE + 1)).hexdigest()
    assert put_into(folder) == [carried.data_ref]
    reference = parsed(carried.data_ref or "")
    assert reference is not None
    assert await storage.get(reference) == text(INLINE + 1)


async def test_a20_at_one_megabyte_a_webhook_is_taken_by_reference_and_one_byte_more_is_refused(
    gateway: Gateway, secret: str, folder: Path
) -> None:
    assert (await gateway.hook(secret, text(MOST))).status == 202
    answer = await gateway.hook(secret, text(MOST + 1))
    assert (answer.status, answer.code) == (413, "E_BODY_TOO_LARGE")
    assert len(put_into(folder)) == 1
    rows = await gateway.rows("select length(value) as size from automation.outbox")
    assert rows[0]["size"] < 1000


async def test_a_repetition_is_the_same_object_and_another_body_is_a_conflict(
    gateway: Gateway, secret: str, folder: Path
) -> None:
    first = await gateway.hook(secret, text(INLINE + 1), key="k")
    again = await gateway.hook(secret, text(INLINE + 1), key="k")
    other = await gateway.hook(secret, text(INLINE + 2), key="k")
    assert [one.status for one in (first, again, other)] == [202, 200, 422]
    assert again.body["run_id"] == first.body["run_id"]
    assert len(put_into(folder)) == 2, "that of the conflict is an orphan, for the sweep"
    assert len(await published(gateway)) == 1


async def test_a20_an_event_over_rest_is_measured_by_its_data(gateway: Gateway, folder: Path) -> None:
    for size, key in ((INLINE, "a"), (INLINE + 1, "b")):
        assert (await gateway.call("POST", "/v1/automation/events", data=event(size, key), headers=JSON)).status == 202
    whole, carried = await published(gateway)
    assert (whole.data_ref, carried.data_size) == (None, INLINE + 1)
    assert put_into(folder) == [carried.data_ref]


async def test_a20_an_event_over_rest_is_a_megabyte_with_all_that_is_around_its_data(
    gateway: Gateway, folder: Path
) -> None:
    around = len(event(2)) - 2
    for size, status in ((MOST - around, 202), (MOST - around + 1, 413)):
        answer = await gateway.call("POST", "/v1/automation/events", data=event(size), headers=JSON)
        assert (answer.status, answer.body.get("code")) == (status, None if status == 202 else "E_BODY_TOO_LARGE")
    (carried,) = await published(gateway)
    assert carried.data_size == MOST - around
    assert put_into(folder) == [carried.data_ref]


async def by_hand(gateway: Gateway, size: int, key: str) -> Answer:
    """A run by hand with an input of this size."""
    sent = b'{"input":' + text(size) + b"}"
    path = "/v1/automation/workflows/wf_invoice_settle/runs"
    return await gateway.call("POST", path, data=sent, headers={**JSON, "A44-Idempotency-Key": key})


async def test_a20_a_run_by_hand_is_a_megabyte_with_all_that_is_around_its_input(
    gateway: Gateway, folder: Path
) -> None:
    await gateway.publish({"wf.yaml": WORKFLOW})
    most = MOST - len(b'{"input":}')
    assert (await by_hand(gateway, most, "k1")).status == 202
    answer = await by_hand(gateway, most + 1, "k2")
    assert (answer.status, answer.code) == (413, "E_BODY_TOO_LARGE")
    (row,) = await gateway.rows("select input, input_ref from automation.live_runs")
    assert json.loads(row["input"])["data_size"] == most
    assert put_into(folder) == [row["input_ref"]]


async def test_a20_at_256_kb_a_run_by_hand_holds_its_input_and_one_byte_more_is_a_reference(
    gateway: Gateway, folder: Path
) -> None:
    await gateway.publish({"wf.yaml": WORKFLOW})
    assert (await by_hand(gateway, INLINE, "small")).status == 202
    (whole,) = await gateway.rows("select input, input_ref from automation.live_runs")
    assert (whole["input"].encode(), whole["input_ref"]) == (text(INLINE), None)
    assert put_into(folder) == []
    answer = await by_hand(gateway, INLINE + 1, "k")
    assert answer.status == 202
    (row,) = await gateway.rows("select input, input_ref from automation.live_runs where input_ref is not null")
    assert put_into(folder) == [row["input_ref"]]
    assert json.loads(row["input"])["data_size"] == INLINE + 1
    shown = await gateway.call("GET", f"/v1/automation/runs/{answer.body['run_id']}")
    assert shown.body["input"]["data_ref"] == row["input_ref"]
    assert await gateway.rows("select reference from automation.stored_bodies") == [{"reference": row["input_ref"]}]


async def test_while_the_storage_is_away_the_door_says_so_and_takes_nothing(
    gateway: Gateway, secret: str, folder: Path
) -> None:
    shutil.move(folder, folder.with_name("away"))
    answer = await gateway.hook(secret, text(INLINE + 1), key="k")
    assert (answer.status, answer.code) == (503, "E_STORAGE_UNAVAILABLE")
    assert "Retry-After" in answer.headers
    assert str(folder) not in json.dumps(answer.body)
    assert await gateway.rows("select * from automation.idempotency_keys") == []
    assert await published(gateway) == []
    assert (await gateway.hook(secret, text(INLINE), key="small")).status == 202, "what is small needs no storage"
    shutil.move(folder.with_name("away"), folder)
    assert (await gateway.hook(secret, text(INLINE + 1), key="k")).status == 202


async def test_a_body_that_nobody_signed_is_not_stored(gateway: Gateway, secret: str, folder: Path) -> None:
    assert (await gateway.hook(secret, text(MOST), signature="0" * 64)).status == 401
    assert put_into(folder) == []


class TestWithoutStorage:
    @pytest.fixture
    def storage(self) -> None:
        return None

    async def test_everything_travels_whole_as_before(self, gateway: Gateway, secret: str) -> None:
        assert (await gateway.hook(secret, text(MOST))).status == 202
        (whole,) = await published(gateway)
        assert (len(whole.data), whole.data_ref) == (MOST, None)
