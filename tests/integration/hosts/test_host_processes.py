"""Host processes as the system sees them: environment, account, folders, spare, idle, end."""

import asyncio
import json
import os
import shutil
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from processors.executor.hosts import HostSettings
from tests.integration.hosts.scripted import Scripted, Shelf, Story, quick
from tests.support.waiting import until

MakeScripted = Callable[[HostSettings], Scripted]

ROOT = Path(__file__).resolve().parents[3]
SYSTEM_PYTHON = Path("/usr/bin/python3")
ASKS = """
import signal, stat
def tells():
    bundle = os.path.dirname(os.path.abspath(__file__))
    def writable(folder):
        try: open(os.path.join(folder, "probe"), "w").close()
        except OSError: return False
        return True
    return {
        "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0), "environment": dict(os.environ),
        "uid": os.getuid(), "groups": os.getgroups(), "cwd": os.getcwd(), "umask": os.umask(0o077),
        "bundle": bundle, "bundle_writable": writable(bundle), "home_writable": writable(os.environ["HOME"]),
        "can_be_root": can_be_root(), "open": sorted(map(int, os.listdir("/proc/self/fd"))),
    }
def can_be_root():
    try: os.setuid(0)
    except OSError: return False
    return True
@workflow("t", version=1)
async def body(ctx, input):
    return await step.run("who", timeout="5s", fn=tells)
"""


def told(story: Story) -> dict[str, object]:
    answer = json.loads(story.values["who"])
    assert isinstance(answer, dict)
    return answer


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def tell(scripted: Scripted, shelf: Shelf, run_id: str = "run_1", losses: int = 0) -> dict[str, object]:
    story = scripted.start(run_id, shelf.put(ASKS), losses=losses)
    await scripted.until(lambda: story.end)
    return told(story)


async def test_the_environment_is_an_allow_list(
    with_settings: MakeScripted, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A44_DATABASE", "secret")
    monkeypatch.setenv("PARTNER", "http://127.0.0.1:1")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    scripted = with_settings(quick(environment=("PARTNER",), extra_environment={"MORE": "1"}))
    seen = (await tell(scripted, shelf))["environment"]
    assert isinstance(seen, dict)
    assert {"PATH", "HOME"} <= seen.keys()
    assert seen["PARTNER"] == "http://127.0.0.1:1"
    assert (seen["MORE"], seen["TZ"], seen["PYTHONHASHSEED"]) == ("1", "UTC", "0")
    assert not seen.keys() & {"A44_DATABASE", "PYTHONPATH", "VIRTUAL_ENV", "PYTEST_CURRENT_TEST"}


async def test_a_host_has_a_session_and_a_home_of_its_own(scripted: Scripted, shelf: Shelf) -> None:
    seen = await tell(scripted, shelf)
    assert seen["session"] == seen["pid"]
    assert seen["parent"] == os.getpid()
    environment = seen["environment"]
    assert isinstance(environment, dict)
    home = Path(environment["HOME"])
    assert seen["cwd"] == str(home)
    assert seen["umask"] == 0o077
    assert stat.S_IMODE(home.stat().st_mode) == 0o700  # noqa: ASYNC240 - one question
    assert stat.S_IMODE(home.parent.stat().st_mode) & 0o007 == 0
    await scripted.hosts.aclose()
    assert not home.parent.exists()
    assert is_gone(int(str(seen["pid"])))


@pytest.fixture
def open_sdk() -> Iterator[Path]:
    """A copy of the SDK that everybody may read."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shutil.copytree(ROOT / "sdk" / "anthares44", folder / "anthares44", ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up an account")
@pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="needs an interpreter that everybody can run")
async def test_as_root_hosts_run_under_an_account_that_can_do_little(
    with_settings: MakeScripted, shelf: Shelf, open_sdk: Path
) -> None:
    environment = {"PYTHONPATH": str(open_sdk)}
    scripted = with_settings(quick(interpreter=str(SYSTEM_PYTHON), extra_environment=environment))
    seen = await tell(scripted, shelf)
    assert seen["uid"] not in {0, None}
    assert (seen["groups"], seen["can_be_root"]) == ([], False)
    assert (seen["bundle_writable"], seen["home_writable"]) == (False, True)


async def test_hosts_die_with_their_executor(tmp_path: Path) -> None:
    """Killed without a word, with a host whose loop is blocked."""
    script = tmp_path / "executor.py"
    script.write_text(
        """
import asyncio
from tests.integration.hosts.scripted import Scripted, Shelf, quick
from processors.executor.hosts import StepHosts
BODY = '''
@workflow("t", version=1)
async def body(ctx, input):
    async def who(): return os.getpid()
    await step.run("who", timeout="5s", fn=who)
    async def blocks():
        await asyncio.sleep(0.01)
        time.sleep(300)
    await step.run("b", timeout="500s", fn=blocks)
'''
async def main():
    shelf, scripted = Shelf(), Scripted()
    scripted.hosts = StepHosts(scripted, shelf, quick())
    story = scripted.start("run_1", shelf.put(BODY))
    await scripted.until(lambda: len(story.turns) == 2)
    print("pid", story.values["who"], flush=True)
    await asyncio.sleep(300)
asyncio.run(main())
"""
    )
    executor = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'sdk'}", "TMPDIR": str(tmp_path)},
        stdout=PIPE,
    )
    assert executor.stdout is not None
    pid = 0
    async for line in executor.stdout:
        word, _, rest = line.decode().partition(" ")
        if word == "pid":
            pid = int(rest)
            break
    assert pid
    executor.kill()
    await executor.communicate()
    await until(lambda: is_gone(pid) or _is_zombie(pid), "the host is gone", 5)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_a_spare_is_ready_before_it_is_needed_and_another_follows(scripted: Scripted, shelf: Shelf) -> None:
    scripted.hosts.warm()
    fleet = scripted.hosts._fleet
    await until(lambda: fleet._spare is not None and fleet._spare.pid is not None, "a spare")
    assert fleet._spare is not None
    pid = fleet._spare.pid
    assert (await tell(scripted, shelf))["pid"] == pid
    await until(lambda: fleet._spare is not None and fleet._spare.pid not in {None, pid}, "another spare")


async def test_a_run_that_asks_to_be_alone_is(scripted: Scripted, shelf: Shelf) -> None:
    shared = await tell(scripted, shelf)
    alone = await tell(scripted, shelf, "run_2", losses=2)
    assert alone["pid"] != shared["pid"]
    assert (await tell(scripted, shelf, "run_3"))["pid"] == shared["pid"]
    scripted.hosts.drop("run_2", 1)
    await until(lambda: is_gone(int(str(alone["pid"]))), "its host went with it")


async def test_hosts_for_runs_alone_are_few_at_once(with_settings: MakeScripted, shelf: Shelf) -> None:
    scripted = with_settings(quick(alone_hosts=2, spare=False))
    definition = shelf.put(ASKS)
    stories = [scripted.start(f"run_{n}", definition, losses=2) for n in range(5)]
    scripted.hosts.drop("run_4", 1)
    for _ in range(2):
        done = [story for story in stories if story.end]
        await scripted.until(lambda done=done: sum(bool(story.end) for story in stories) >= len(done) + 2)
        assert sum(bool(story.end) for story in stories) == len(done) + 2
        for story in stories:
            if story.end:
                scripted.hosts.drop(story.start.run_id, 1)
    assert not stories[4].turns
    assert len({told(story)["pid"] for story in stories[:4]}) == 4


async def test_runs_that_lost_their_host_once_share_a_few_hosts_apart_from_the_others(
    with_settings: MakeScripted, shelf: Shelf
) -> None:
    scripted = with_settings(quick(apart_hosts=2, spare=False))
    definition = shelf.put(ASKS)
    stories = [scripted.start(f"run_{n}", definition, losses=1 if n else 0) for n in range(7)]
    await scripted.until(lambda: all(story.end for story in stories))
    together = Counter(told(story)["pid"] for story in stories)
    assert sorted(together.values()) == [1, 3, 3]
    assert together[told(stories[0])["pid"]] == 1


async def test_another_digest_is_another_host_and_idle_ones_are_stopped(
    with_settings: MakeScripted, shelf: Shelf
) -> None:
    scripted = with_settings(quick(idle=0.3, spare=False))
    first = scripted.start("run_1", shelf.put(ASKS, definition=1))
    await scripted.until(lambda: first.end)
    reloaded = scripted.start("run_2", shelf.put(ASKS + "\n# saved again", definition=2))
    await scripted.until(lambda: reloaded.end)
    one, two = told(first), told(reloaded)
    assert one["pid"] != two["pid"]
    assert one["bundle"] != two["bundle"]
    scripted.hosts.drop("run_1", 1)
    await until(lambda: is_gone(int(str(one["pid"]))), "the idle host is gone")
    assert not is_gone(int(str(two["pid"])))


async def test_definitions_of_one_digest_share_a_host(scripted: Scripted, shelf: Shelf) -> None:
    one = scripted.start("run_1", shelf.put(ASKS, definition=1, digest="sha256:same"))
    two = scripted.start("run_2", shelf.put(ASKS, definition=2, digest="sha256:same"))
    await scripted.until(lambda: one.end and two.end)
    assert told(one)["pid"] == told(two)["pid"]


async def test_closing_ends_hosts_that_ignore_being_asked(with_settings: MakeScripted, shelf: Shelf) -> None:
    scripted = with_settings(quick(stop_within=0.5))
    definition = shelf.put("""
import signal
@workflow("t", version=1)
async def body(ctx, input):
    async def who(): return os.getpid()
    await step.run("who", timeout="5s", fn=who)
    async def blocks():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        await asyncio.sleep(0.01)
        time.sleep(300)
    await step.run("b", timeout="500s", fn=blocks)
""")
    story = scripted.start("run_1", definition)
    await scripted.until(lambda: len(story.turns) == 2)
    pid = int(story.values["who"])
    await scripted.hosts.aclose()
    assert is_gone(pid)
    assert story.lost is None


async def test_closing_at_any_moment_of_a_start_leaves_nothing(with_settings: MakeScripted, shelf: Shelf) -> None:
    definition = shelf.put(ASKS)
    before = set(children())
    for rounds in range(0, 24, 2):
        scripted = with_settings(quick(drop_root=False, spare=bool(rounds % 4)))
        story = scripted.start("run_1", definition)
        for _ in range(rounds):
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await scripted.hosts.aclose()
        assert not story.turns
        assert story.lost is None
    assert set(children()) == before


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()


async def test_what_a_killed_owner_left_behind_is_removed_and_what_is_in_use_is_not(
    with_settings: MakeScripted, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    abandoned, unlocked = tmp_path / "a44-hosts-old", tmp_path / "a44-hosts-young"
    abandoned.mkdir()
    unlocked.mkdir()
    (abandoned / "owner.lock").touch()
    scripted = with_settings(quick())
    await tell(scripted, shelf)
    other = with_settings(quick())
    await tell(other, shelf, "run_2")
    assert not abandoned.exists()
    assert unlocked.exists()
    assert len(list(tmp_path.glob("a44-hosts-*"))) == 3  # noqa: ASYNC240 - one question


def test_the_same_on_uvloop(shelf: Shelf) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> dict[str, object]:
        from processors.executor.hosts import StepHosts  # noqa: PLC0415 - made inside that loop

        scripted = Scripted()
        scripted.hosts = StepHosts(scripted, shelf, quick())
        try:
            return await tell(scripted, shelf)
        finally:
            await scripted.hosts.aclose()

    assert uvloop.run(main())["parent"] == os.getpid()
