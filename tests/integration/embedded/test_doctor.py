"""`a44 doctor` on real servers: well, then with each part stopped, the schema missing, and the clock wrong."""

import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from ops.doctor import FAILED, OK, SKIPPED, WARNING, Finding, Patient, examine
from ops.embedded import EmbeddedStack
from processors.adapters.kafka.admin import KafkaAdmin
from processors.adapters.postgres.migrations import migrate
from topology.topics import Topics


@pytest.fixture
def temporary_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of its own, which root's servers may pass: pytest's own is closed to them."""
    with tempfile.TemporaryDirectory(prefix="a44-test-") as name:
        place = Path(name)
        place.chmod(0o711)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield place


@pytest.fixture
async def stack(temporary_place: Path) -> AsyncIterator[EmbeddedStack]:
    async with EmbeddedStack() as running:
        yield running


def patient_of(stack: EmbeddedStack) -> Patient:
    return Patient(
        postgres_dsn=stack.postgres_dsn,
        kafka_bootstrap=stack.kafka_bootstrap,
        topic_prefix="a44",
        python="python3-that-is-not-there",
        url="http://127.0.0.1:9",
        token="",
        is_default_url=True,
    )


async def findings(patient: Patient) -> dict[str, Finding]:
    return {finding.check: finding for finding in await examine(patient)}


async def test_each_real_part_that_is_stopped_is_found_with_the_way_out(stack: EmbeddedStack) -> None:
    patient = patient_of(stack)
    found = await findings(patient)
    assert (found["database"].state, found["broker"].state) == (OK, WARNING)
    assert found["migrations"].state == FAILED
    assert "0001_pre_log.sql" in found["migrations"].seen
    assert "a44 migrate" in (found["migrations"].way_out or "")
    assert found["clock of database"].state == OK
    assert found["disk of database"].state in (OK, WARNING)
    assert (found["gateway"].state, found["step python"].state) == (SKIPPED, FAILED)

    await migrate(patient.postgres_dsn)
    await KafkaAdmin(patient.kafka_bootstrap, "tests").ensure_topics(Topics("a44").all())
    found = await findings(patient)
    assert [found[check].state for check in ("database", "migrations", "broker")] == [OK, OK, OK]

    await stack.broker.kill_immediately()
    began = time.monotonic()
    found = await findings(patient)
    assert time.monotonic() - began < 30
    assert (found["database"].state, found["broker"].state) == (OK, FAILED)
    assert patient.kafka_bootstrap in found["broker"].seen
    assert "A44_KAFKA_BOOTSTRAP" in (found["broker"].way_out or "")

    await stack.postgres.kill_immediately()
    found = await findings(patient)
    assert [found[check].state for check in ("database", "migrations", "clock of database")] == [
        FAILED,
        SKIPPED,
        SKIPPED,
    ]
    assert "does not answer" in found["database"].seen
    assert "A44_POSTGRES_DSN" in (found["database"].way_out or "")


async def test_a_schema_of_another_version_is_found(migrated_database: str, servers: object) -> None:
    patient = Patient(migrated_database, "", "a44", "python3", "http://127.0.0.1:9", "", is_default_url=True)
    async with await psycopg.AsyncConnection.connect(migrated_database, autocommit=True) as conn:
        await conn.execute("insert into public.automation_migrations values (9999, '9999_pre_future.sql', 'x')")
        newer = (await findings(patient))["migrations"]
        await conn.execute("update public.automation_migrations set checksum = 'x' where number = 1")
        changed = (await findings(patient))["migrations"]
        await conn.execute("alter role current_user set synchronous_commit = off")
        loose = (await findings(patient))["database"]
        await conn.execute("alter role current_user reset synchronous_commit")
    assert (newer.state, newer.seen) == (WARNING, "newer than this version: 9999_pre_future.sql")
    assert (changed.state, changed.seen) == (FAILED, "not as this version has them: 0001_pre_log.sql")
    assert (loose.state, "synchronous_commit off" in loose.seen) == (FAILED, True)


@pytest.mark.parametrize(("ahead", "state"), [(0.0, OK), (-60.0, WARNING), (299.0, WARNING), (302.0, FAILED)])
async def test_a_clock_beyond_the_window_of_webhooks_is_found(
    migrated_database: str, monkeypatch: pytest.MonkeyPatch, ahead: float, state: str
) -> None:
    patient = Patient(migrated_database, "", "a44", "python3", "http://127.0.0.1:9", "", is_default_url=True)
    real = time.time
    monkeypatch.setattr("processors.adapters.postgres.checkup.time.time", lambda: real() - ahead)
    clock = (await findings(patient))["clock of database"]
    monkeypatch.undo()
    assert clock.state == state
    if state != OK:
        assert "NTP" in (clock.way_out or "")
        assert "webhooks allow 300 s" in clock.seen


async def test_a_full_disk_is_found(migrated_database: str) -> None:
    patient = Patient(migrated_database, "", "a44", "python3", "http://127.0.0.1:9", "", is_default_url=True)
    short = replace(patient, good_free=10**18)
    full = replace(short, least_free=10**18)
    assert (await findings(short))["disk of temporary files"].state == WARNING
    told = (await findings(full))["disk of temporary files"]
    assert told.state == FAILED
    assert "make room" in (told.way_out or "")
