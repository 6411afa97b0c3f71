"""Workflows of many characters, for tests of what hosts do to runs and runs to hosts."""

import json
import os

from tests.integration.hosts.scripted import Scripted, Shelf, Story

STEADY = """
@workflow("t", version=1)
async def body(ctx, input):
    async def who(): return os.getpid()
    pid = await step.run("who", timeout="5s", fn=who)
    await step.run("wait", timeout="60s", fn=lambda: asyncio.sleep(50))
"""

MANY = """
def sleeps(seconds, mark=None, began=None, release=None):
    if began: open(began, "w").close()
    waits(seconds, release)
    if mark: open(mark, "w").close()
    return "slept"

async def blocks(seconds):
    time.sleep(seconds)
    return "blocked"

@workflow("t", version=1)
async def body(ctx, input):
    what, seconds, timeout = input["what"], input.get("seconds", 0), input.get("timeout", "5s")
    if what == "body-blocks":
        until = time.monotonic() + seconds
        while time.monotonic() < until: pass
    fn = {
        "quick": lambda: "quick",
        "thread": lambda: sleeps(seconds, input.get("mark"), input.get("began"), input.get("release")),
        "block": lambda: blocks(seconds),
        "async": lambda: naps(seconds, input.get("release")),
        "exit": lambda: sys.exit(3),
        "die": lambda: os._exit(5),
        "flood": lambda: [print("x" * 100) for _ in range(200_000)] and None,
    }.get(what, lambda: None)
    async def who(): return os.getpid()
    pid = await step.run("who", timeout="5s", fn=who)
    first = await step.run("a", timeout=timeout, fn=fn)
    return {"pid": pid, "first": first}

def waits(seconds, release):
    time.sleep(seconds)
    while release and not os.path.exists(release): time.sleep(0.01)

async def naps(seconds, release):
    await asyncio.sleep(seconds)
    while release and not os.path.exists(release): await asyncio.sleep(0.01)
    return "slept"
"""


def start(scripted: Scripted, shelf: Shelf, run_id: str, what: str, **more: object) -> Story:
    auto, losses = bool(more.pop("auto", True)), int(str(more.pop("losses", 0)))
    if 1 not in shelf.bundles:
        shelf.put(MANY)
    return scripted.start(run_id, 1, given=json.dumps({"what": what, **more}), auto=auto, losses=losses)


def pid_of(story: Story) -> int:
    return int(story.values["who"])


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
