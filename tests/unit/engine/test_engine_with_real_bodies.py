"""The engine and the bodies of the SDK together: whoever dies whenever, no run is blocked, and it ends.

The two agree on `after`, on what is history and what is delivered again, and on items given up. Messages go through
the executor's own conversions; only the processes between them are left out.
"""

import random
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from anthares44.automation.host import told
from anthares44.automation.items import Item
from anthares44.automation.items import Turn as BodyTurn
from anthares44.automation.replay import Replay
from processors.engine.commands import Turn
from processors.engine.effects import Deliver
from processors.engine.requests import BodyEnd, BodyStatus
from processors.engine.state import RunState
from processors.executor.hosts import messages as said
from processors.executor.hosts.calls import delivery, start_messages
from processors.executor.live_run import LiveRun
from schemas.records import Kind, Status
from tests.unit.engine.tiny_world import TinyWorld
from tests.unit.executor.test_order_of_effects import claim
from tests.unit.sdk import test_turns_of_asyncio as asyncio_bodies
from tests.unit.sdk.lives import new_run

STARTED = datetime(2026, 11, 29, 20, 0, tzinfo=UTC)


class RealBody:
    """A body of the SDK in this process, told everything as a step host would tell it."""

    def __init__(self, body: Any, *, self_starts: bool) -> None:
        self._run = new_run(body, generation=1)
        self._self_starts = self_starts
        self._tokens = 0
        self.end: BodyEnd | None = None

    def begin(self, state: RunState, *, may_start: bool) -> Turn:
        live = LiveRun(claim(run_id=state.run_id, started_at=STARTED), "code", state, state.seq)
        messages = list(start_messages(live.start(1.0), "w", "1"))
        history = [item for message in messages[1:] for item in message["items"]]
        if not history:
            return self._told(self._run.begin(), may_start=may_start)
        turn = Replay(self._run, history).play(10_000)
        assert turn is not None
        return self._told(turn, may_start=may_start)

    def deliver(self, effect: Deliver, *, may_start: bool) -> Turn:
        value = effect.value
        if value is None and effect.outcome is Status.SUCCEEDED and self._run.items[effect.item].kind == Kind.STEP:
            value = f'"{effect.item}"'  # the host has it from the attempt
        message = delivery(
            "run", 1, effect.seq, effect.item, effect.outcome, value, effect.error, effect.at, go_until=None
        )
        turn = self._run.deliver(
            message["seq"],
            message["item"],
            message["outcome"],
            at=message["at"],
            value=message.get("value"),
            error=message.get("error"),
        )
        return self._told(turn, may_start=may_start)

    def close(self) -> Turn:
        return self._told(self._run.close(), may_start=False)

    def _told(self, turn: BodyTurn, *, may_start: bool) -> Turn:
        assert self._run.blocked is None, self._run.blocked
        requests = []
        for request in turn.requests:
            token = None
            if may_start and self._self_starts and isinstance(request, Item) and request.starts_at_once():
                self._tokens += 1
                token = f"h{self._tokens}"
            requests.append(request.request(turn.after, token))
        (heard,), fault = said.read_frame(f"[{told.turn(self._run, turn, requests)}]".encode())
        assert isinstance(heard, said.Turn), fault
        self.end = _end_of(heard.ended)
        return Turn(heard.after, heard.requests, self.end)


def _end_of(ended: said.Ended | None) -> BodyEnd | None:
    if ended is None:
        return None
    error = said.error_of(ended.error) if ended.error else None
    return BodyEnd(BodyStatus(ended.status), ended.value, error)


def disturbed(world: TinyWorld, chance: random.Random, most: int) -> None:
    """Let things happen in any order, with owners and hosts that die in between."""
    for _ in range(most):
        moves = world.moves()
        if not moves:
            return
        fate = chance.random()
        if fate < 0.06:
            world.reclaim(owner_lost=True)
        elif fate < 0.1:
            world.kill_host()
        else:
            chance.choice(moves)()


@pytest.mark.parametrize("body", asyncio_bodies.BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("self_starts", [True, False], ids=["host-starts", "executor-starts"])
def test_whoever_dies_a_real_body_is_never_taken_for_another(body: Any, self_starts: bool) -> None:
    for seed in range(25):
        chance = random.Random(seed)
        fates = {name: chance.choice((0, 0, 0, 1, -1)) for name in ("a", "b", "a1", "x-one", "b-more")}
        world = TinyWorld(partial(RealBody, body, self_starts=self_starts), fates)
        disturbed(world, chance, 60)
        world.finish()
        assert not world.blocked, (seed, world.stage.log[-1])
        assert world.end is not None, seed


@pytest.mark.parametrize("body", asyncio_bodies.BODIES, ids=lambda body: body.__name__)
def test_from_any_prefix_of_its_log_a_real_body_comes_to_its_end(body: Any) -> None:
    chance = random.Random(7)
    make_body = partial(RealBody, body, self_starts=True)
    world = TinyWorld(make_body, {})
    disturbed(world, chance, 40)
    world.finish()
    log = world.stage.log
    for length in range(len(log)):
        other = TinyWorld(make_body, {}, log[:length])
        other.finish()
        assert other.end is not None, f"resumed after {length} of {len(log)}"


@pytest.mark.parametrize("body", asyncio_bodies.BODIES, ids=lambda body: body.__name__)
def test_a_real_body_can_be_cancelled_at_any_time(body: Any) -> None:
    for cut in range(0, 24, 3):
        world = TinyWorld(partial(RealBody, body, self_starts=True), {})
        disturbed(world, random.Random(cut), cut)
        if world.parked:
            world.wake()
        if world.end is None:
            world.cancel()
            world.finish()
        assert world.outcome()[0] in {"cancelled", "succeeded", "failed"}
