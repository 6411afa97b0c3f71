"""A body whose input lies in storage begins once it is here and hears everything in order; no neighbour waits."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from processors.engine.requests import BodyEnd, BodyStatus, Request
from processors.executor.stored_inputs import StoredInputs
from processors.ports.bodies import BodyStart
from schemas.errors import Refused, Unavailable
from schemas.records import ErrorInfo
from schemas.stored_bodies import Reference
from tests.support.waiting import until

NOW = datetime(2026, 7, 19, tzinfo=UTC)
REFERENCE = Reference("20260719", "pj_shop", "a" * 64)


class Storage:
    """Answers what it is told to, once it may."""

    def __init__(self) -> None:
        self.answers: list[bytes | Exception] = []
        self.open = asyncio.Event()
        self.open.set()

    async def get(self, reference: Reference) -> bytes:
        await self.open.wait()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        assert reference == REFERENCE
        return answer


class Heard:
    """Bodies and listener at once: everything that was said, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def start(self, run: BodyStart) -> None:
        self.said.append(("start", run.run_id, run.input))

    def run_step(self, run_id: str, fence: int, item: str, attempt: int, token: str, key: str, timeout: float) -> None:
        self.said.append(("run_step", run_id, item))

    def deliver(self, run_id: str, fence: int, seq: int, *rest: object) -> None:
        self.said.append(("deliver", run_id, seq))

    def cancel_step(self, run_id: str, fence: int, item: str) -> None:
        self.said.append(("cancel_step", run_id, item))

    def close_run(self, run_id: str, fence: int, cause: str) -> None:
        self.said.append(("close_run", run_id, cause))

    def drop(self, run_id: str, fence: int) -> None:
        self.said.append(("drop", run_id))

    async def aclose(self) -> None:
        self.said.append(("aclose",))

    def turned(self, run_id: str, fence: int, after: int, requests: Sequence[Request], end: BodyEnd | None) -> None:
        assert end is not None
        self.said.append(("turned", run_id, end.status))

    def diverged(self, run_id: str, fence: int, error: ErrorInfo) -> None:
        self.said.append(("diverged", run_id, error.code))


def run(name: str = "run_1", reference: str | None = str(REFERENCE), project: str = "pj_shop") -> BodyStart:
    return BodyStart(
        run_id=name, fence=1, project_id=project, workflow_id="wf", definition_id=1, version="1", kind="yaml",
        generation=1, input='{"data_ref":"..."}', started_at=NOW, idempotency_key="k", partition_key="p", lane="l",
        event_id="e", event_type="t", occurred_at=NOW, history=(), go_until=None, input_ref=reference,
    )  # fmt: skip


def staged(*answers: bytes | Exception) -> tuple[StoredInputs, Heard, Storage]:
    heard, storage = Heard(), Storage()
    storage.answers = list(answers)
    return StoredInputs(heard, heard, storage), heard, storage  # type: ignore[arg-type]


async def test_the_body_begins_with_its_input() -> None:
    bodies, heard, _ = staged(b'{"n":1}')
    bodies.start(run())
    await until(lambda: heard.said == [("start", "run_1", '{"n":1}')], "what is heard")


async def test_what_is_said_meanwhile_is_said_behind_the_start_in_its_order() -> None:
    bodies, heard, storage = staged(b"1")
    storage.open.clear()
    bodies.start(run())
    bodies.deliver("run_1", 1, 3, "a", "succeeded", "1", None, NOW, None)
    bodies.run_step("run_1", 1, "b", 1, "t", "k", 5.0)
    bodies.cancel_step("run_1", 1, "b")
    bodies.start(run("run_2", None))
    assert heard.said == [("start", "run_2", '{"data_ref":"..."}')], "a neighbour waits for nothing"
    storage.open.set()
    await until(lambda: len(heard.said) == 5, "what is heard")
    assert [one[0] for one in heard.said[1:]] == ["start", "deliver", "run_step", "cancel_step"]


async def test_a_storage_that_is_away_is_asked_again() -> None:
    away = Unavailable("E_STORAGE_UNAVAILABLE", "away")
    bodies, heard, _ = staged(away, away, b"1")
    bodies.start(run())
    await until(lambda: heard.said == [("start", "run_1", "1")], "what is heard")


@pytest.mark.parametrize(
    "started", [run(project="other"), run(reference="elsewhere")], ids=["another project's", "no reference"]
)
async def test_b09_what_is_not_its_projects_is_not_read(started: BodyStart) -> None:
    bodies, heard, _ = staged(b"1")
    bodies.start(started)
    await until(lambda: heard.said == [("diverged", "run_1", "E_STORED_BODY_MISSING")], "what is heard")


async def test_an_input_that_is_not_there_any_more_blocks_its_run() -> None:
    bodies, heard, _ = staged(Refused("E_STORED_BODY_MISSING", "gone"))
    bodies.start(run())
    await until(lambda: heard.said == [("diverged", "run_1", "E_STORED_BODY_MISSING")], "what is heard")


async def test_without_storage_the_run_says_so() -> None:
    heard = Heard()
    bodies = StoredInputs(heard, heard, None)  # type: ignore[arg-type]
    bodies.start(run())
    await until(lambda: heard.said == [("diverged", "run_1", "E_STORED_BODY_MISSING")], "what is heard")


async def test_a_run_that_is_cancelled_meanwhile_ends_and_one_that_is_dropped_is_forgotten() -> None:
    bodies, heard, storage = staged(b"1")
    storage.open.clear()
    for name in ("run_1", "run_2", "run_3"):
        bodies.start(run(name))
    bodies.close_run("run_1", 1, "by maria")
    bodies.drop("run_2", 1)
    bodies.drop("run_3", 0)  # of another life
    storage.open.set()
    await until(lambda: len(heard.said) == 2, "what is heard")
    assert set(heard.said) == {("turned", "run_1", BodyStatus.CANCELLED), ("start", "run_3", "1")}


async def test_whoever_has_begun_is_spoken_to_directly() -> None:
    bodies, heard, _ = staged(b"1")
    bodies.close_run("run_1", 1, "why")
    bodies.drop("run_1", 1)
    bodies.start(run())
    await bodies.aclose()
    assert heard.said == [("close_run", "run_1", "why"), ("drop", "run_1"), ("aclose",)]
