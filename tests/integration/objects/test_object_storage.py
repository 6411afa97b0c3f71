"""Storage in a folder and in a bucket: what was put comes back proven, what is away is no fault of the body."""

import asyncio
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from ops.composition.roles import scheduler
from ops.composition.storage import storage_of
from ops.embedded.ports import free_port
from ops.settings import Settings
from processors.adapters.objects.storage import ObjectStorage, open_storage
from processors.ports.measures import Measures
from processors.scheduler.sweep_of_bodies import sweep_bodies
from schemas.errors import Refused, Unavailable
from schemas.stored_bodies import MOST_INLINE, Reference, StoredBody, too_large_to_travel
from tests.integration.objects.conftest import BUCKET, KEY, SECRET
from tests.support.waiting import until

NOW = datetime(2026, 7, 19, 12, tzinfo=UTC)


def body(letter: str = "x", at: datetime = NOW, size: int = MOST_INLINE + 1, project: str = "acme") -> StoredBody:
    made = too_large_to_travel(project, f'"{letter * (size - 2)}"', at)
    assert made is not None
    return made


@pytest.mark.parametrize("size", [262_145, 1_000_000])
async def test_what_was_put_comes_back_byte_for_byte(storage: ObjectStorage, size: int) -> None:
    one = body(size=size)
    await storage.put(one)
    assert await storage.get(one.reference) == one.content


async def test_a_repetition_is_the_same_object(storage: ObjectStorage) -> None:
    await storage.put(body())
    await storage.put(body())
    assert await storage.stored_on("20260719") == [body().reference]


async def test_days_are_told_in_order_with_what_they_brought(storage: ObjectStorage) -> None:
    before = body(at=NOW - timedelta(days=400))
    for one in (body("a"), body("b"), before, body("a", project="other")):
        await storage.put(one)
    assert await storage.days() == ["20250614", "20260719"]
    assert await storage.stored_on("20250614") == [before.reference]
    assert len(await storage.stored_on("20260719")) == 3
    assert await storage.stored_on("19990101") == []


async def test_what_is_not_there_is_refused_by_name(storage: ObjectStorage) -> None:
    gone, kept = body(), body("kept")
    await storage.put(gone)
    await storage.put(kept)
    await storage.remove([gone.reference, body("b").reference])
    with pytest.raises(Refused) as caught:
        await storage.get(gone.reference)
    assert caught.value.code == "E_STORED_BODY_MISSING"
    await storage.remove([kept.reference])
    assert await storage.days() == []


async def test_content_that_is_not_what_its_reference_says_is_refused(storage: ObjectStorage) -> None:
    told = Reference("20260719", "acme", "0" * 64)
    await storage.put(StoredBody(told, b'"something else"'))
    with pytest.raises(Refused, match="is not what was put there"):
        await storage.get(told)


async def test_orphans_of_days_long_over_are_swept_and_nothing_else(storage: ObjectStorage) -> None:
    old = NOW - timedelta(days=40)
    orphans, kept = [body(letter, old) for letter in "abc"], body("k", old)
    young = body("y", NOW - timedelta(days=31))
    for one in (*orphans, kept, young):
        await storage.put(one)

    async def somebodys(_: object) -> list[Reference]:
        return [kept.reference]

    assert await sweep_bodies(storage, somebodys, NOW, 31) == 3
    assert await storage.stored_on(kept.reference.day) == [kept.reference]
    assert await storage.get(young.reference) == young.content
    assert await sweep_bodies(storage, somebodys, NOW, 31) == 0


async def test_a_server_that_is_away_is_no_fault_of_the_body() -> None:
    away = open_storage("s3://bodies", endpoint=f"http://127.0.0.1:{free_port()}", access_key="a", secret_key="b")
    for asked in (away.put(body()), away.get(body().reference), away.days()):
        with pytest.raises(Unavailable) as caught:
            await asked
        assert caught.value.code == "E_STORAGE_UNAVAILABLE"
        assert "127.0.0.1" not in caught.value.message


async def test_a_bucket_that_is_not_there_says_nothing_about_what_was_in_it(s3_endpoint: str) -> None:
    nowhere = open_storage("s3://no-such-bucket", endpoint=s3_endpoint, access_key="a", secret_key="b")
    for asked in (nowhere.put(body()), nowhere.get(body().reference), nowhere.days()):
        with pytest.raises(Unavailable):
            await asked


async def test_a_folder_that_went_away_says_nothing_about_what_was_in_it(tmp_path: Path) -> None:
    storage = open_storage(f"file://{tmp_path}/bodies")
    await storage.put(body())
    shutil.move(tmp_path / "bodies", tmp_path / "elsewhere")
    for asked in (storage.put(body("b")), storage.get(body().reference), storage.days()):
        with pytest.raises(Unavailable):
            await asked
    shutil.move(tmp_path / "elsewhere", tmp_path / "bodies")
    assert await storage.get(body().reference) == body().content


async def test_an_empty_folder_is_a_disk_that_is_not_mounted(tmp_path: Path) -> None:
    await open_storage(f"file://{tmp_path}/bodies").put(body())
    shutil.move(tmp_path / "bodies", tmp_path / "elsewhere")
    began_meanwhile = open_storage(f"file://{tmp_path}/bodies")
    with pytest.raises(Unavailable, match="is empty"):
        await began_meanwhile.get(body().reference)
    (tmp_path / "bodies").rmdir()
    shutil.move(tmp_path / "elsewhere", tmp_path / "bodies")
    assert await began_meanwhile.get(body().reference) == body().content


@pytest.mark.parametrize("url", ["ftp://x", "s3://", "file://", "file:///", "file://host/folder", "bodies"])
def test_an_address_of_no_storage_is_refused(url: str) -> None:
    with pytest.raises(Refused) as caught:
        open_storage(url)
    assert caught.value.code == "E_CONFIG"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="cannot be made"):
        open_storage(f"file://{tmp_path}/file/bodies")


async def test_the_settings_say_which_storage_it_is(s3_endpoint: str, tmp_path: Path) -> None:
    assert storage_of(Settings()) is None
    bucket = Settings(
        storage_url=f"s3://{BUCKET}/by-settings",
        storage_endpoint=s3_endpoint,
        storage_access_key=KEY,
        storage_secret_key=SecretStr(SECRET),
    )
    for settings in (bucket, Settings(storage_url=f"file://{tmp_path}/bodies")):
        storage = storage_of(settings)
        assert storage is not None
        await storage.put(body())
        assert await storage.get(body().reference) == body().content
    assert SECRET not in repr(bucket)


@pytest.mark.parametrize(("days", "left"), [(21, 0), (31, 1)])
async def test_the_settings_say_how_long_orphans_are_kept(tmp_path: Path, days: int, left: int) -> None:
    class Schedule:
        async def kept_bodies(self, _: object) -> list[Reference]:
            return []

    settings = Settings(storage_url=f"file://{tmp_path}/bodies", storage_orphan_days=days)
    storage, stop, measures = storage_of(settings), asyncio.Event(), Measures()
    assert storage is not None
    old = body(at=datetime.now(UTC) - timedelta(days=25))
    await storage.put(old)
    sweeping = asyncio.create_task(scheduler._sweep_bodies(settings, Schedule(), stop, measures))  # type: ignore[arg-type]
    await until(lambda: any(name == "stored_bodies_swept_total" for name, *_ in measures), "it has swept")
    stop.set()
    await sweeping
    assert len(await storage.stored_on(old.reference.day)) == left
    assert measures.value("stored_bodies_swept_total") == 1 - left
