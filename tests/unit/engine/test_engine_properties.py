"""Whatever happens in whatever order: the log stays sound, folds into the state, and leads to one end."""

from functools import partial

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.records import Status
from tests.unit.engine.tiny_body import Act, ActKind, TinyBody
from tests.unit.engine.tiny_world import TinyWorld

KINDS: st.SearchStrategy[ActKind] = st.sampled_from(["step", "step", "step", "sleep", "skip", "loose", "race"])
SECONDS = st.sampled_from([0.0, 0.05, 5.0, 60.0])
Plan = tuple[list[list[Act]], dict[str, int]]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Up to three branches, and what becomes of their steps. One step at most fails for good."""
    program: list[list[Act]] = []
    fates: dict[str, int] = {}
    names = 0
    for _ in range(draw(st.integers(1, 3))):
        branch = []
        for _ in range(draw(st.integers(1, 3))):
            names += 1
            name = f"s{names}"
            branch.append(Act(draw(KINDS), name, draw(SECONDS), draw(st.integers(1, 4))))
            fates[name] = draw(st.integers(0, branch[-1].most - 1))
        program.append(branch)
    awaited = [act.name for branch in program for act in branch if act.kind == "step"]
    is_doomed: bool = draw(st.booleans())
    if awaited and is_doomed:
        fates[draw(st.sampled_from(awaited))] = -1
    return program, fates


SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SLOW
@given(plan=plans(), picks=st.lists(st.integers(0, 99), max_size=60), self_starts=st.booleans())
def test_any_order_of_events_leaves_a_sound_log(plan: Plan, picks: list[int], self_starts: bool) -> None:
    program, fates = plan
    make_body = partial(TinyBody, program, self_starts)
    world = TinyWorld(make_body, fates)
    for pick in picks:
        moves = world.moves()
        if not moves:
            break
        if pick < 80:
            moves[pick % len(moves)]()
        elif pick < 86:
            world.reclaim(owner_lost=True)
        elif pick < 90:
            world.kill_host()
        elif pick < 98:
            world.stray(f"s{pick % 5 + 1}")
        else:
            world.cancel()
    world.finish()
    assert world.end is not None
    assert world.statuses()[-1] == ("~run", Status.ENDED)


@SLOW
@given(plan=plans(), self_starts=st.booleans(), picks=st.lists(st.integers(0, 5), max_size=30))
def test_from_any_prefix_of_the_log_the_run_reaches_the_same_end(
    plan: Plan, self_starts: bool, picks: list[int]
) -> None:
    program, fates = plan
    make_body = partial(TinyBody, program, self_starts)
    world = TinyWorld(make_body, fates)
    for pick in picks:
        if moves := world.moves():
            moves[pick % len(moves)]()
    world.finish()
    log = world.stage.log
    for length in range(len(log)):
        other = TinyWorld(make_body, fates, log[:length])
        other.finish()
        assert other.outcome() == world.outcome(), f"resumed after {length} of {len(log)}"


@SLOW
@given(plan=plans(), cut=st.integers(0, 40))
def test_a_cancelled_run_ends_as_cancelled_or_had_ended_before(plan: Plan, cut: int) -> None:
    program, fates = plan
    world = TinyWorld(partial(TinyBody, program), fates)
    for _ in range(cut):
        if moves := world.moves():
            moves[-1]()
    closing = world.stage.state.closing
    if world.end is None:
        if world.parked:
            world.wake()
        if world.end is None:
            closing = world.stage.state.closing
            world.cancel()
    world.finish()
    if closing is None:
        assert world.outcome()[0] in {"cancelled", "succeeded", "failed"}
    if closing is None and world.stage.state.closing is not None:
        assert world.outcome()[0] == "cancelled"
