"""Definitions that cannot be read now: runs wait for them, none is lost, and each is asked for once at a time."""

import asyncio
from collections import deque

import pytest

from processors.engine.requests import BodyStatus
from processors.runtime import patience
from processors.runtime.yaml_body import CONNECTOR, SQL, YamlBodies
from schemas.errors import Refused, Unavailable
from tests.support.waiting import until
from tests.support.yaml_listener import RememberingListener
from tests.support.yaml_runs import RUN_ID, DrivenAction, spec_of, start_of
from topology.workflows import WorkflowSpec

SLEEPS = spec_of("- {id: a, uses: sleep, duration: 1s}")
MANY = 500


class Store:
    """Answers each question with what stands next, or else is away; `gate` holds all answers back."""

    def __init__(self, *answers: WorkflowSpec | Exception) -> None:
        self.answers = deque(answers)
        self.asked: list[int] = []
        self.at_once = self.most_at_once = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.listener = RememberingListener()
        actions = {CONNECTOR: DrivenAction(), SQL: DrivenAction()}
        self.bodies = YamlBodies(self.listener, self.find, actions)

    async def find(self, definition_id: int) -> WorkflowSpec:
        self.asked.append(definition_id)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.gate.wait()
        finally:
            self.at_once -= 1
        answer = self.answers.popleft() if self.answers else Unavailable("E_UNAVAILABLE", "Postgres does not answer")
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(patience, "LONGEST_PAUSE", 0.01)


@pytest.mark.usefixtures("quick")
async def test_a_run_waits_for_a_definition_that_cannot_be_read_now():
    away = Unavailable("E_UNAVAILABLE", "Postgres does not answer")
    store = Store(*[away] * 7, SLEEPS)  # more than the losses that end a run
    store.bodies.start(start_of())
    assert (await store.listener.next("turned"))[2] is None
    assert (len(store.asked), store.listener.told) == (8, [])
    await store.bodies.aclose()


async def test_many_runs_of_a_new_workflow_ask_for_it_once():
    store = Store(SLEEPS)
    store.gate.clear()
    for number in range(MANY):
        store.bodies.start(start_of(run_id=f"run_{number}"))
    await until(lambda: store.asked, "the question")
    store.gate.set()
    for _ in range(MANY):
        await store.listener.next("turned")
    assert (store.asked, store.most_at_once) == ([1], 1)
    await store.bodies.aclose()


async def test_each_definition_is_a_question_of_its_own():
    store = Store()
    store.gate.clear()
    store.bodies.start(start_of(run_id="run_a", definition_id=1))
    store.bodies.start(start_of(run_id="run_b", definition_id=2))
    await until(lambda: store.at_once == 2, "both questions")
    await store.bodies.aclose()
    assert (sorted(store.asked), store.at_once) == ([1, 2], 0)


async def test_a_refusal_reaches_everybody_who_waits_and_is_asked_again_later():
    store = Store(Refused("E_VERSION_UNKNOWN", "gone"), SLEEPS)
    store.bodies.start(start_of(run_id="run_a"))
    store.bodies.start(start_of(run_id="run_b"))
    codes = [(await store.listener.next("diverged"))[0].code for _ in range(2)]
    assert (codes, store.asked) == (["E_VERSION_UNKNOWN"] * 2, [1])
    store.bodies.start(start_of(run_id="run_a", fence=2))
    await store.listener.next("turned")
    await store.bodies.aclose()


@pytest.mark.usefixtures("quick")
async def test_the_question_ends_with_the_last_run_that_waits():
    store = Store()
    store.bodies.start(start_of(run_id="run_a"))
    store.bodies.start(start_of(run_id="run_b"))
    await until(lambda: len(store.asked) > 2, "a few questions")
    store.bodies.drop("run_a", 1)
    asked = len(store.asked)
    await until(lambda: len(store.asked) > asked, "another question, for the one that is left")
    store.gate.clear()
    await until(lambda: store.at_once == 1, "a question that is open")
    store.bodies.drop("run_b", 1)
    await until(lambda: store.at_once == 0, "the end of the question")
    store.answers.append(SLEEPS)
    store.gate.set()
    store.bodies.start(start_of(run_id="run_c"))
    await store.listener.next("turned")
    assert store.listener.told == []
    await store.bodies.aclose()


async def test_a_run_that_waits_can_be_cancelled():
    store = Store()
    store.bodies.start(start_of())
    await until(lambda: store.asked, "the question")
    store.bodies.close_run(RUN_ID, 1, "cancelled by ana")
    after, requests, end = await store.listener.next("turned")
    assert (after, requests, end.status) == (0, [], BodyStatus.CANCELLED)
    assert store.at_once == 0
    await store.bodies.aclose()


@pytest.mark.parametrize("is_asking", [True, False])
async def test_a_stop_does_not_wait_for_the_definition(*, is_asking: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(patience, "FIRST_PAUSE", 600.0)
    store = Store()
    if is_asking:
        store.gate.clear()
    store.bodies.start(start_of())
    await until(lambda: store.asked and store.at_once == is_asking, "the question, or the pause after it")
    async with asyncio.timeout(10):
        await store.bodies.aclose()
    assert (store.at_once, store.listener.told) == (0, [])
