"""Runs through real host processes: turns, outcomes, replay, many at once, large values."""

import json
from collections import Counter
from datetime import timedelta

from processors.engine.requests import BodyStatus, CancelRequest, RetryPolicy, SkipRequest, SleepRequest, StepRequest
from processors.ports.bodies import Past
from schemas.errors import Refused, Unavailable
from schemas.records import ErrorInfo
from tests.integration.hosts.scripted import BEGAN, Scripted, Shelf

THREE = """
@workflow("t", version=1)
async def body(ctx, input):
    a = await step.run("a", timeout="5s", fn=lambda: input["n"] + 1)
    b = await step.run("b", timeout="5s", fn=lambda: a * 2)
    await step.sleep("nap", "1h")
    async def c(): return {"b": b, "key": ctx.idempotency_key}
    return await step.run("c", timeout="5s", fn=c)
"""
PARALLEL = """
@workflow("t", version=1)
async def body(ctx, input):
    async def one(n): return n
    names = [f"s{n}" for n in range(10)]
    return await asyncio.gather(*(step.run(s, timeout="5s", fn=lambda n=n: one(n)) for n, s in enumerate(names)))
"""
PAIR = """
@workflow("t", version=1)
async def body(ctx, input):
    a = step.run("a", timeout="7s", retry={"max": 5, "base": 2}, fn=lambda: "a")
    b = step.run("b", timeout="8s", fn=lambda: "b")
    first = await a
    await step.sleep("nap", "1h")
    return [first, await b]
"""
FAILING = """
@workflow("t", version=1)
async def body(ctx, input):
    def fails(): raise LookupError("no such tenant")
    await step.run("a", timeout="5s", fn=fails)
"""


def past(seq: int, item: str, kind: str, after: int, outcome: str | None, value: str | None = None) -> Past:
    return Past(seq, item, kind, after, outcome, value, None, BEGAN + timedelta(seconds=seq))


async def test_three_steps_and_a_sleep(scripted: Scripted, shelf: Shelf) -> None:
    story = scripted.start("run_1", shelf.put(THREE), given='{"n": 20}')
    await scripted.until(lambda: story.end)
    assert story.end is not None
    assert json.loads(story.end.value or "") == {"b": 42, "key": "run_1:c:g1"}
    assert [after for after, _ in story.turns] == [0, 1, 2, 3, 4]
    assert story.items() == ["a", "b", "nap", "c"]


async def test_steps_wait_for_the_executor_where_it_gives_no_leave(scripted: Scripted, shelf: Shelf) -> None:
    story = scripted.start("run_1", shelf.put(THREE), given='{"n": 1}', go=False)
    await scripted.until(lambda: story.end)
    first = story.turns[0][1][0]
    assert isinstance(first, StepRequest)
    assert (first.started, first.token, first.timeout) == (False, None, 5.0)
    assert first.retry == RetryPolicy(3, 1.0, 300.0, "exponential-jitter")


async def test_parallel_steps_come_in_one_turn_and_each_outcome_has_its_own(scripted: Scripted, shelf: Shelf) -> None:
    story = scripted.start("run_1", shelf.put(PARALLEL))
    await scripted.until(lambda: story.end)
    assert story.end is not None
    assert json.loads(story.end.value or "") == list(range(10))
    assert [len(requests) for _, requests in story.turns] == [10] + [0] * 10
    assert [after for after, _ in story.turns] == list(range(11))


async def test_a_run_comes_back_from_its_history(scripted: Scripted, shelf: Shelf) -> None:
    definition = shelf.put(THREE)
    first = scripted.start("run_1", definition, given='{"n": 20}')
    await scripted.until(lambda: first.end)
    again = scripted.start("run_1", definition, given='{"n": 20}', fence=2, history=first.history[:3])
    await scripted.until(lambda: again.end)
    assert again.end == first.end
    assert [after for after, _ in again.turns] == [3, 4]
    assert again.items() == ["c"]


async def test_a_history_with_its_end_answers_in_one_turn(scripted: Scripted, shelf: Shelf) -> None:
    definition = shelf.put(THREE)
    first = scripted.start("run_1", definition, given='{"n": 20}')
    await scripted.until(lambda: first.end)
    again = scripted.start("run_2", definition, given='{"n": 20}', history=first.history)
    await scripted.until(lambda: again.end)
    assert again.turns == [(4, [])]


async def test_what_is_not_settled_is_asked_for_again_and_not_started(scripted: Scripted, shelf: Shelf) -> None:
    history = [
        past(1, "b", "step", 0, None),
        past(2, "a", "step", 0, "succeeded", '"kept"'),
        past(3, "nap", "sleep", 2, None),
    ]
    story = scripted.start("run_1", shelf.put(PAIR), history=history, auto=False)
    await scripted.until(lambda: story.turns)
    (after, requests), *others = story.turns
    assert not others
    assert after == 2
    nap, b = sorted(requests, key=lambda request: isinstance(request, StepRequest))
    assert nap == SleepRequest("nap", 3600.0)
    assert b == StepRequest("b", 8.0, RetryPolicy(), started=False, token=None, after=0)


async def test_a_step_that_no_record_knows_keeps_the_turn_it_was_asked_in(scripted: Scripted, shelf: Shelf) -> None:
    history = [past(1, "a", "step", 0, "succeeded", '"kept"')]
    story = scripted.start("run_1", shelf.put(PAIR), history=history, go=False, auto=False)
    await scripted.until(lambda: story.turns)
    ((after, requests),) = story.turns
    assert after == 1
    asked = {one.item: one.after for one in requests if not isinstance(one, CancelRequest | SkipRequest)}
    assert asked == {"b": 0, "nap": None}


async def test_what_the_body_gave_up_is_given_up_again_on_replay(scripted: Scripted, shelf: Shelf) -> None:
    definition = shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    late = step.sleep("late", "9h")
    await step.run("a", timeout="5s", fn=lambda: 1)
    late.cancel()
    await step.sleep("nap", "1h")
""")
    history = [past(1, "late", "sleep", 0, "cancelled"), past(2, "a", "step", 0, "succeeded", "1")]
    story = scripted.start("run_1", definition, history=history, auto=False)
    await scripted.until(lambda: story.turns or story.diverged)
    assert story.turns == [(2, [CancelRequest("late"), SleepRequest("nap", 3600.0)])]


async def test_another_way_than_the_recorded_one_is_told_with_its_place(scripted: Scripted, shelf: Shelf) -> None:
    story = scripted.start("run_1", shelf.put(THREE), history=[past(1, "z", "step", 0, "succeeded", "1")])
    await scripted.until(lambda: story.diverged)
    assert story.diverged is not None
    assert story.diverged.code == "E_NONDETERMINISTIC_REPLAY"
    assert "'z'" in story.diverged.message
    assert (story.diverged.line or "").startswith("flow.py:")
    assert not story.diverged.retryable


async def test_a_failed_step_tells_its_error_and_a_delivered_failure_ends_the_body(
    scripted: Scripted, shelf: Shelf
) -> None:
    story = scripted.start("run_1", shelf.put(FAILING))
    await scripted.until(lambda: story.failures)
    ((item, attempt, error),) = story.failures
    assert (item, attempt, error.code, error.type, error.message) == (
        "a", 1, "E_STEP_FAILED", "LookupError", "no such tenant",
    )  # fmt: skip
    assert (error.line, error.retryable) == ("flow.py:6", True)
    scripted.run_step("run_1", "a", 2, 5.0)
    await scripted.until(lambda: len(story.failures) == 2)
    scripted.deliver("run_1", "a", "step", "failed", None, error)
    await scripted.until(lambda: story.end)
    assert story.end is not None
    assert story.end.status is BodyStatus.FAILED
    assert story.end.error is not None
    assert (story.end.error.code, story.end.error.type) == ("E_STEP_FAILED", "LookupError")


async def test_200_runs_at_once_share_a_host(scripted: Scripted, shelf: Shelf) -> None:
    definition = shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    async def who(): return os.getpid()
    return [await step.run(name, timeout="5s", fn=who) for name in ("a", "b", "c")]
""")
    stories = [scripted.start(f"run_{n}", definition) for n in range(200)]
    await scripted.until(lambda: all(story.end for story in stories))
    pids = Counter(pid for story in stories if story.end for pid in json.loads(story.end.value or ""))
    assert list(pids.values()) == [600]
    assert shelf.fetched == 1


async def test_large_results_and_inputs_pass_whole_in_both_directions(scripted: Scripted, shelf: Shelf) -> None:
    definition = shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    async def grow(): return input["text"] + "ž" * 300_000
    value = await step.run("a", timeout="5s", fn=grow)
    async def measure(): return [len(value), value[:3], value[-1]]
    return [value, await step.run("b", timeout="5s", fn=measure)]
""")
    given = json.dumps({"text": "x" * 300_000})
    story = scripted.start("run_1", definition, given=given)
    await scripted.until(lambda: story.end)
    assert story.end is not None
    value, measured = json.loads(story.end.value or "")
    assert measured == [600_000, "xxx", "ž"]
    assert value == "x" * 300_000 + "ž" * 300_000
    again = scripted.start("run_2", definition, given=given, history=story.history)
    await scripted.until(lambda: again.end)
    assert again.end == story.end


async def test_more_than_the_byte_credit_passes_when_it_is_given_back(scripted: Scripted, shelf: Shelf) -> None:
    definition = shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    async def big(): return "x" * 1_500_000
    values = await asyncio.gather(*(step.run(f"s{n}", timeout="20s", fn=big) for n in range(8)))
    return sum(map(len, values))
""")
    story = scripted.start("run_1", definition)
    await scripted.until(lambda: story.end)
    again = scripted.start("run_2", definition, history=story.history)
    await scripted.until(lambda: again.end)
    assert story.end is not None
    assert story.end.value == "12000000"
    assert again.end == story.end


async def test_a_closed_run_answers_with_its_end(scripted: Scripted, shelf: Shelf) -> None:
    story = scripted.start("run_1", shelf.put(THREE), auto=False, given='{"n": 1}', go=False)
    await scripted.until(lambda: story.turns)
    scripted.hosts.close_run("run_1", 1, "cancelled by somebody")
    await scripted.until(lambda: story.end)
    assert story.end is not None
    assert story.end.status is BodyStatus.CANCELLED


async def test_what_is_asked_before_the_host_is_there_waits(scripted: Scripted, shelf: Shelf) -> None:
    story = scripted.start("run_1", shelf.put(THREE), auto=False, given='{"n": 1}', go=False)
    scripted.hosts.close_run("run_1", 1, "at once")
    await scripted.until(lambda: story.end)
    assert story.end is not None
    assert story.end.status is BodyStatus.CANCELLED


async def test_a_cancelled_attempt_says_so(scripted: Scripted, shelf: Shelf) -> None:
    definition = shelf.put("""
@workflow("t", version=1)
async def body(ctx, input):
    await step.run("a", timeout="50s", fn=lambda: asyncio.sleep(40))
""")
    story = scripted.start("run_1", definition)
    await scripted.until(lambda: story.turns)
    scripted.hosts.cancel_step("run_1", 1, "a")
    await scripted.until(lambda: story.failures)
    assert story.failures[0][2].code == "E_CANCELLED"


async def test_another_life_of_a_run_is_not_touched(scripted: Scripted, shelf: Shelf) -> None:
    story = scripted.start("run_1", shelf.put(THREE), fence=7, auto=False, given='{"n": 1}', go=False)
    await scripted.until(lambda: story.turns)
    hosts = scripted.hosts
    hosts.drop("run_1", 6)
    hosts.close_run("run_1", 6, "late")
    hosts.run_step("run_1", 6, "a", 1, "x", "k", 5.0)
    hosts.deliver("run_1", 6, 1, "a", "failed", None, ErrorInfo("E", "E", "late"), BEGAN, None)
    scripted.run_step("run_1", "a", 1, 5.0)
    await scripted.until(lambda: story.values)
    assert story.values == {"a": "2"}
    assert len(story.turns) == 1


async def test_nothing_follows_a_drop(scripted: Scripted, shelf: Shelf) -> None:
    definition = shelf.put(THREE)
    dropped = scripted.start("run_1", definition, given='{"n": 1}')
    scripted.hosts.drop("run_1", 1)
    other = scripted.start("run_2", definition, given='{"n": 1}')
    await scripted.until(lambda: other.end)
    assert not dropped.turns


async def test_a_bundle_that_cannot_be_imported_names_the_place(scripted: Scripted, shelf: Shelf) -> None:
    definition = shelf.put("x = 1\ny = $\n")
    stories = [scripted.start(f"run_{n}", definition) for n in range(3)]
    await scripted.until(lambda: all(story.diverged for story in stories))
    later = scripted.start("run_9", definition)
    await scripted.until(lambda: later.diverged)
    for story in (*stories, later):
        assert story.diverged is not None
        assert story.diverged.code == "E_BUNDLE_IMPORT"
        assert story.diverged.line == "flow.py:4:5"
        assert "SyntaxError" in story.diverged.message


async def test_a_version_that_the_bundle_lacks_is_told(scripted: Scripted, shelf: Shelf) -> None:
    story = scripted.start("run_1", shelf.put("@workflow('other', version=1)\nasync def body(ctx, input): ...\n"))
    await scripted.until(lambda: story.diverged)
    assert story.diverged is not None
    assert story.diverged.code == "E_VERSION_UNKNOWN"


async def test_a_definition_that_is_refused_blocks_and_one_that_is_away_is_waited_for(
    scripted: Scripted, shelf: Shelf
) -> None:
    shelf.bundles[1] = Refused("E_VERSION_UNKNOWN", "there is no definition 1")
    shelf.bundles[2] = Unavailable("E_UNAVAILABLE", "the store is away")
    refused, away = scripted.start("run_1", 1), scripted.start("run_2", 2, given='{"n": 1}')
    await scripted.until(lambda: refused.diverged)
    assert refused.diverged is not None
    assert refused.diverged.code == "E_VERSION_UNKNOWN"
    shelf.put(THREE, definition=2)
    await scripted.until(lambda: away.end)
    assert away.lost is None


async def test_a_bundle_with_a_path_out_of_its_folder_is_refused(scripted: Scripted, shelf: Shelf) -> None:
    definition = shelf.put(THREE)
    bundle = shelf.bundles[definition]
    assert not isinstance(bundle, Exception)
    object.__setattr__(bundle, "files", {**bundle.files, "../out.py": "x"})
    story = scripted.start("run_1", definition)
    await scripted.until(lambda: story.diverged)
    assert story.diverged is not None
    assert story.diverged.code == "E_BUNDLE_INVALID"
