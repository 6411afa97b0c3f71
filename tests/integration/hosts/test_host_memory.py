"""Hosts that take more memory than they may: what it costs, and whom."""

import os
import signal
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from processors.executor.hosts import HostSettings
from tests.integration.hosts.characters import is_gone, pid_of
from tests.integration.hosts.scripted import Scripted, Shelf, quick
from tests.support.waiting import until

MakeScripted = Callable[[HostSettings], Scripted]
LIMIT_MB = 150

GREEDY = """
HELD = []

def grows(pause=0.01):
    while True:
        HELD.append(b"x" * 4_000_000)
        time.sleep(pause)

async def grows_on_the_loop():
    while True:
        HELD.append(b"x" * 4_000_000)
        await asyncio.sleep(0.01)

async def grows_and_blocks():
    grows(0.06)  # slowly enough for a heartbeat to name it

def asks_for_all():
    return len(b"x" * (1 << 36))

async def asks_for_all_on_the_loop():
    return asks_for_all()

def dies():
    os._exit(5)

async def holds_for_a_moment():
    data = b"x" * 200_000_000
    del data
    return "let go"

@workflow("t", version=1)
async def body(ctx, input):
    async def who(): return os.getpid()
    await step.run("who", timeout="30s", fn=who)
    return await step.run("a", timeout="30s", fn=globals().get(input) or (lambda: asyncio.sleep(float(input))))
"""


@pytest.fixture
def limited(with_settings: MakeScripted) -> Scripted:
    return with_settings(quick(memory_mb=LIMIT_MB, silence=30.0))


async def begin(scripted: Scripted, shelf: Shelf, run_id: str, what: str, **more: int) -> int:
    """A run that is in its step `a`, or has even lost its host; the pid of that."""
    story = scripted.start(run_id, shelf.put(GREEDY), given=f'"{what}"', **more)
    await scripted.until(lambda: "a" in story.items() or story.lost)
    return pid_of(story)


@pytest.mark.parametrize("grows", ["grows", "grows_on_the_loop", "grows_and_blocks"])
async def test_a_host_that_grows_past_its_limit_is_ended_and_its_run_suspected(
    limited: Scripted, shelf: Shelf, grows: str
) -> None:
    with capture_logs() as logs:
        pid = await begin(limited, shelf, "run_1", grows)
        greedy = limited.stories["run_1"]
        await limited.until(lambda: greedy.lost)
    assert "MB of memory, and its limit is 150 MB" in (greedy.lost or "")
    assert greedy.suspected
    await until(lambda: is_gone(pid), "the host is gone")
    (told,) = [line for line in logs if line["event"] == "step_host_too_large"]
    assert (told["pid"], told["limit_mb"], told["suspect"]) == (pid, LIMIT_MB, "run_1")
    assert told["rss_mb"] > LIMIT_MB
    assert told["in_flight"] == ([] if grows == "grows_and_blocks" else ["run_1 a"])  # its turn could not be sent
    assert limited.measures.value("host_memory_kills_total") == 1
    assert limited.measures.value("host_deaths_total", "memory") == 1


async def test_neighbours_of_the_only_attempt_that_is_there_are_not_suspected(limited: Scripted, shelf: Shelf) -> None:
    resting = limited.start("run_2", shelf.put(GREEDY), given='"0"', auto=False)
    await limited.until(lambda: "who" in resting.values)
    await begin(limited, shelf, "run_3", "3", losses=1)  # in a host apart
    await begin(limited, shelf, "run_1", "grows")
    elsewhere, greedy = limited.stories["run_3"], limited.stories["run_1"]
    await limited.until(lambda: resting.lost and greedy.lost and elsewhere.end)
    assert (greedy.suspected, resting.suspected, elsewhere.lost) == (True, False, None)


async def test_where_several_were_at_work_everybody_is_suspected(limited: Scripted, shelf: Shelf) -> None:
    await begin(limited, shelf, "run_2", "30")
    await begin(limited, shelf, "run_1", "grows")
    await limited.until(lambda: all(story.lost for story in limited.stories.values()))
    assert all(story.suspected for story in limited.stories.values())


@pytest.mark.parametrize("asks", ["asks_for_all", "asks_for_all_on_the_loop"])
async def test_what_is_asked_for_at_once_and_not_there_fails_its_step_alone(
    limited: Scripted, shelf: Shelf, asks: str
) -> None:
    pid = await begin(limited, shelf, "run_2", "1")
    assert await begin(limited, shelf, "run_1", asks) == pid
    greedy, neighbour = limited.stories["run_1"], limited.stories["run_2"]
    await limited.until(lambda: greedy.failures and neighbour.end)
    error = greedy.failures[0][2]
    assert (error.code, error.type, error.retryable) == ("E_STEP_MEMORY", "MemoryError", True)
    assert error.line is not None
    assert neighbour.lost is None


async def test_memory_that_is_given_back_before_the_next_look_ends_no_host(
    with_settings: MakeScripted, shelf: Shelf
) -> None:
    scripted = with_settings(quick(memory_mb=LIMIT_MB, silence=30.0, look_every=4.0))
    await begin(scripted, shelf, "run_1", "holds_for_a_moment")
    story = scripted.stories["run_1"]
    await scripted.until(lambda: story.end, within=60)
    assert story.lost is None


async def test_without_a_limit_a_host_may_grow(with_settings: MakeScripted, shelf: Shelf) -> None:
    scripted = with_settings(quick(memory_mb=0))
    shelf.put("""
import resource
@workflow("t", version=1)
async def body(ctx, input):
    async def limit(): return resource.getrlimit(resource.RLIMIT_DATA)[0]
    return await step.run("a", timeout="5s", fn=limit)
""")
    story = scripted.start("run_1", 1)
    await scripted.until(lambda: story.end)
    assert story.values["a"] == "-1"


async def test_a_death_that_nobody_planned_is_counted_by_its_cause(limited: Scripted, shelf: Shelf) -> None:
    await begin(limited, shelf, "run_1", "dies")
    await limited.until(lambda: limited.stories["run_1"].lost)
    os.kill(await begin(limited, shelf, "run_2", "30"), signal.SIGKILL)
    await limited.until(lambda: limited.stories["run_2"].lost)
    causes = {labels: value for name, labels, value in limited.measures if name == "host_deaths_total"}
    assert causes == {("exit",): 1, ("signal",): 1}
