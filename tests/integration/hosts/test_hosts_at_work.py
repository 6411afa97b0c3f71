"""Real hosts under a real executor on the real log: what faults of steps cost, and what the record says of them."""

import sys
import time

import pytest

from processors.engine.decide import CLOSE_GRACE
from processors.executor.hosts import CodeBundle
from schemas.errors import Unavailable
from tests.integration.hosts.at_work import AtWork
from tests.integration.hosts.scripted import quick
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("how", ["in_a_thread", "on_the_loop", "blocking_the_loop"])
async def test_f03_a_step_far_longer_than_the_lease_keeps_its_run(at_work: AtWork, how: str) -> None:
    """The lease is 5 s, and the scheduler takes runs from whoever does not renew it."""
    await at_work.begin(
        """
@workflow("t", version=1)
async def body(ctx, input):
    def blocks(): time.sleep(12)
    async def blocking(): blocks()
    fn = {"in_a_thread": blocks, "on_the_loop": lambda: asyncio.sleep(12), "blocking_the_loop": blocking}
    await step.run("long", timeout="60s", fn=fn[input])
    await step.run("next", timeout="60s", fn=lambda: 1)
""",
        lease=5.0,
    )
    (run,) = await at_work.make(f'"{how}"')
    (row,) = await at_work.works.ended(1, 60.0)
    assert (row["state"], row["fence"]) == ("succeeded", 1)
    assert await at_work.attempts(run) == ["long 1 succeeded", "next 1 succeeded", "~run 0 ended"]
    assert at_work.measures.value("session_lost_total") == 0


async def test_d12_a_bug_that_fails_the_same_way_each_time_ends_after_the_attempts_of_its_policy(
    at_work: AtWork,
) -> None:
    await at_work.begin("""
@workflow("t", version=1)
async def body(ctx, input):
    def buggy(): return {}["customer"]
    await step.run("a", timeout="10s", retry={"max": 4, "base": 0.01, "cap": 0.05}, fn=buggy)
""")
    (run,) = await at_work.make("1")
    (row,) = await at_work.works.ended(1, 60.0)
    assert row["state"] == "failed"
    assert await at_work.attempts(run) == [*(f"a {n} failed" for n in (1, 2, 3, 4)), "~run 0 ended"]
    (letter,) = await at_work.works.lab.rows("select reason, summary from automation.dead_letters")
    assert letter["reason"] == "max_attempts_exceeded"
    assert "customer" not in letter["summary"]


async def test_a19_a_result_that_is_no_json_fails_for_good_and_its_effect_is_not_repeated(at_work: AtWork) -> None:
    """`1e400` is read by Python as infinity; the log would refuse what is written of it after the effect."""
    effects = at_work.folder / "effects"
    await at_work.begin(f"""
import json
@workflow("t", version=1)
async def body(ctx, input):
    def pay():
        with open({str(effects)!r}, "a") as file: file.write(input + " ")
        return {{"deep": [json.loads(input)]}}
    await step.run("pay", timeout="10s", retry={{"max": 4, "base": 0.01, "cap": 0.05}}, fn=pay)
""")
    inputs = ["NaN", "1e400", "-Infinity"]
    runs = await at_work.make(*(f'"{text}"' for text in inputs))
    rows = await at_work.works.ended(3, 60.0)
    assert {(row["state"], row["error_code"]) for row in rows} == {("failed", "E_RESULT_NOT_JSON")}
    for run in runs:
        assert await at_work.attempts(run) == ["pay 1 failed", "~run 0 ended"]
    assert sorted(effects.read_text().split()) == sorted(inputs)  # each once


KILLS = """
@workflow("t", version=1)
async def body(ctx, input):
    await step.run("before", timeout="60s", fn=lambda: asyncio.sleep(0.1))
    fn = (lambda: os.kill(os.getpid(), signal.SIGKILL)) if input == "poison" else (lambda: time.sleep(0.5))
    await step.run("a", timeout="60s", fn=fn)
    await step.run("after", timeout="60s", fn=lambda: asyncio.sleep(0.1))
"""


async def test_d25_a_run_that_kills_its_host_each_time_ends_and_its_neighbours_succeed(at_work: AtWork) -> None:
    await at_work.begin(KILLS)
    await at_work.works.lab.rows("update automation.queues set max_attempts = 4")
    poison, *neighbours = await at_work.make('"poison"', *(f'"{n}"' for n in range(10)))
    assert await at_work.states([poison, *neighbours], 120.0) == {"succeeded": 10, "failed": 1}
    (row,) = await at_work.works.lab.rows("select * from automation.runs_ended where state = 'failed'")
    assert (row["run_id"], row["error_code"]) == (poison.run_id, "E_WORKER_CRASH_LOOP")
    told = await at_work.attempts(poison)
    assert told[:6] == ["before 1 succeeded", *(f"a {n} lost" for n in (1, 2, 3, 4)), "~run 0 closing"]
    assert told[6:] == ["a 4 cancelled", "~run 0 ended"]
    for neighbour in neighbours:
        succeeded = [line for line in await at_work.attempts(neighbour) if line.endswith("succeeded")]
        assert [line.split()[0] for line in succeeded] == ["before", "a", "after"]
    (letter,) = await at_work.works.lab.rows("select run_id, reason from automation.dead_letters")
    assert (letter["run_id"], letter["reason"]) == (poison.run_id, "max_attempts_exceeded")


@pytest.mark.parametrize(
    ("greedy", "lines", "code"),
    [
        ("grows", ["a 1 lost", "a 2 lost", "a 3 lost"], "E_WORKER_CRASH_LOOP"),
        ("asks_at_once", ["a 1 failed", "a 2 failed"], "E_STEP_MEMORY"),
    ],
)
async def test_a_run_that_takes_too_much_memory_ends_with_its_attempts_told(
    at_work: AtWork, greedy: str, lines: list[str], code: str
) -> None:
    await at_work.begin(
        """
def grows():
    held = []
    while True:
        held.append(b"x" * 4_000_000)
        time.sleep(0.02)

def asks_at_once(): return len(b"x" * (1 << 36))

@workflow("t", version=1)
async def body(ctx, input):
    fn = {"grows": grows, "asks_at_once": asks_at_once}.get(input, lambda: time.sleep(0.2))
    await step.run("a", timeout="60s", retry={"max": 2, "base": 0.01}, fn=fn)
""",
        settings=quick(silence=20.0, memory_mb=150),
    )
    await at_work.works.lab.rows("update automation.queues set max_attempts = 3")
    run, *neighbours = await at_work.make(f'"{greedy}"', *(f'"{n}"' for n in range(5)))
    assert await at_work.states([run, *neighbours], 120.0) == {"succeeded": 5, "failed": 1}
    (row,) = await at_work.works.lab.rows("select * from automation.runs_ended where state = 'failed'")
    assert (row["run_id"], row["error_code"]) == (run.run_id, code)
    assert (await at_work.attempts(run))[: len(lines)] == lines


async def test_a_late_success_of_a_step_that_the_body_gave_up_is_on_record(at_work: AtWork) -> None:
    await at_work.begin("""
@workflow("t", version=1)
async def body(ctx, input):
    def slow():
        time.sleep(2.5)
        return "paid"
    try:
        await asyncio.wait_for(step.run("a", timeout="60s", fn=slow), 0.3)
    except TimeoutError:
        return await step.run("b", timeout="60s", fn=lambda: "went on")
""")
    (run,) = await at_work.make("1")
    (row,) = await at_work.works.ended(1, 60.0)
    assert (row["state"], row["result"]) == ("succeeded", '"went on"')
    told = await at_work.attempts(run)
    assert [line for line in told if line.startswith("a")] == ["a 1 cancelled", "a 1 succeeded"]
    assert told[-2:] == ["a 1 succeeded", "~run 0 ended"]  # the run ends when nothing of it is in flight


async def test_a_retry_that_waits_for_its_thread_is_not_lost_when_the_host_is_ended(at_work: AtWork) -> None:
    await at_work.begin("""
@workflow("t", version=1)
async def body(ctx, input):
    def slow(): time.sleep(0 if os.path.exists(input) else open(input, "w").close() or 60)
    await step.run("a", timeout="3s", retry={"max": 3, "base": 0.01, "cap": 0.02}, fn=slow)
""")
    mark = at_work.folder / "tried"
    (run,) = await at_work.make(f'"{mark}"')
    assert await at_work.states([run]) == {"succeeded": 1}
    assert await at_work.attempts(run) == ["a 1 failed", "a 2 succeeded", "~run 0 ended"]


async def test_a_result_that_comes_after_the_lease_was_lost_is_kept_apart(at_work: AtWork) -> None:
    await at_work.begin("""
@workflow("t", version=1)
async def body(ctx, input):
    def slow():
        if os.path.exists(input):
            return "second"
        open(input, "w").close()
        while not os.path.exists(input + ".go"):
            time.sleep(0.05)
        return "first"
    return await step.run("a", timeout="60s", fn=slow)
""")
    mark = at_work.folder / "tried"
    (run,) = await at_work.make(f'"{mark}"')
    await until(mark.exists, "the step has begun", 60)
    await at_work.works.lab.kill_session()
    await until(lambda: at_work.measures.value("session_lost_total"), "the executor knows", 60)
    mark.with_suffix(".go").touch()
    (row,) = await at_work.works.ended(1, 60.0)
    assert (row["result"], row["fence"]) == ('"second"', 2)
    assert await at_work.attempts(run) == ["a 1 lost", "a 2 succeeded", "~run 0 ended"]

    async def is_kept() -> bool:
        return bool(await at_work.works.lab.rows("select 1 from automation.late_attempts"))

    await until(is_kept, "the late result", 30)
    (late,) = await at_work.works.lab.rows("select * from automation.late_attempts")
    assert (late["run_id"], late["fence"], late["step_id"], late["status"]) == (run.run_id, 1, "a", "succeeded")


async def test_no_run_is_condemned_for_hosts_that_do_not_come_up(at_work: AtWork) -> None:
    """More of them than the losses that end a run, some of which are killed; then the interpreter is mended."""
    tries, interpreter = at_work.folder / "tries", at_work.folder / "python"
    interpreter.write_text(
        f'#!/bin/sh\necho >> {tries}\n[ $(wc -l < {tries}) -gt 6 ] && exec {sys.executable} "$@"\nkill -9 $$\n',
        encoding="utf-8",
    )
    interpreter.chmod(0o755)
    settings = quick(interpreter=str(interpreter), drop_root=False, spare=False, backoff_base=0.05, silence=20.0)
    await at_work.begin(
        """
@workflow("t", version=1)
async def body(ctx, input):
    await step.run("a", timeout="60s", fn=lambda: 1)
""",
        settings=settings,
    )
    runs = await at_work.make("1", "2")
    assert await at_work.states(runs) == {"succeeded": 2}
    for run in runs:
        told = await at_work.attempts(run)
        assert told[-2:] == ["a 2 succeeded", "~run 0 ended"]  # the first is recorded as lost: it might have begun
    assert at_work.measures.value("host_deaths_total", "signal") == 6


async def test_a_run_that_waits_for_its_bundle_is_cancelled_at_once(at_work: AtWork) -> None:
    asked = 0

    async def away(project_id: str, definition_id: int) -> CodeBundle:
        nonlocal asked
        asked += 1
        raise Unavailable("E_UNAVAILABLE", "Postgres is away")

    await at_work.begin("", bundles=away)
    (run,) = await at_work.make("1")
    await until(lambda: asked > 1, "a second try")
    began = time.monotonic()
    await at_work.works.lab.send_mail(run.run_id, "cancel", '{"reason":"ordered twice"}')
    at_work.working.executor.look_for_mail()
    assert await at_work.states([run]) == {"cancelled": 1}
    assert time.monotonic() - began < CLOSE_GRACE.total_seconds()
