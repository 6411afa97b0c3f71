"""The host as a process: timeouts, threads, heartbeat, long values, credit, and its end."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anthares44.automation.wire import CHUNK_BYTES, Message
from tests.conformance.step_host import AT, BUNDLES, PATIENCE, StepHost, deliver_of, soon, start_of


@pytest.fixture
def host() -> Iterator[StepHost]:
    with StepHost() as running:
        yield running


def run_one(host: StepHost, run: str = "run_1", **given: Any) -> Message:
    """Start the workflow of one step; what its step came to."""
    host.load("calls")
    host.start("calls", json.dumps(given), run=run)
    assert host.receive_type("TURN")["requests"][0]["started"] is True
    return host.receive(lambda message: message["t"] in ("DONE", "FAILED") and message["run"] == run)


def line_of(text: str) -> int:
    lines = (BUNDLES / "flows.py").read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}"))


def holds(condition: Callable[[Message], bool]) -> Callable[[Message], bool]:
    return lambda message: message["t"] == "BEAT" and condition(message)


def test_a_coroutine_that_is_late_is_cancelled(host: StepHost):
    failed = run_one(host, kind="sleeps_on_loop", seconds=60, timeout=0.1)
    assert failed["error"]["code"] == "E_STEP_TIMEOUT"
    assert failed["error"]["retryable"] is True
    assert failed["error"]["message"] == "step 'only' ran past its timeout of 0.1 s"
    assert "lingers" not in failed
    assert 0.1 <= failed["cost"] < 5


def test_a_thread_that_is_late_is_told_and_lingers(host: StepHost):
    failed = run_one(host, kind="sleeps_in_thread", seconds=2.5, timeout=0.1)
    assert failed["error"]["code"] == "E_STEP_TIMEOUT"
    assert failed["lingers"] is True
    beat = host.receive(holds(lambda message: bool(message["tokens"])))
    assert beat["tokens"][0][:2] == ["run_1", "only"]
    host.receive(holds(lambda message: not message["tokens"]))
    assert not [message for message in host.idle if message["t"] in ("DONE", "FAILED")]


def test_memory_that_is_not_to_be_had_is_an_error_of_the_step(host: StepHost):
    failed = run_one(host, kind="asks_for_too_much")
    assert (failed["error"]["code"], failed["error"]["retryable"]) == ("E_STEP_MEMORY", True)
    assert "'only' asked for more memory" in failed["error"]["message"]
    assert run_one(host, run="run_2", kind="says_where")["t"] == "DONE"


def test_the_timeout_of_a_queued_function_runs_from_its_start(host: StepHost):
    assert host.load("calls")["t"] == "LOADED"
    given = json.dumps({"kind": "sleeps_in_thread", "seconds": 0.3, "timeout": 0.5})
    count = 40
    host.send(*(start_of("calls", given, run=f"run_{n}") for n in range(count)))
    outcomes = [host.receive(lambda message: message["t"] in ("DONE", "FAILED")) for _ in range(count)]
    assert [outcome["t"] for outcome in outcomes] == ["DONE"] * count


def test_a_cancelled_function_that_never_began_does_not_run(host: StepHost):
    assert host.load("calls")["t"] == "LOADED"
    given = json.dumps({"kind": "sleeps_in_thread", "seconds": 0.4})
    host.send(*(start_of("calls", given, run=f"run_{n}") for n in range(33)))
    host.send({"t": "CANCEL_ITEM", "run": "run_32", "fence": 1, "item": "only"})
    failed = host.receive_type("FAILED")
    assert (failed["run"], failed["error"]["code"]) == ("run_32", "E_CANCELLED")
    assert "lingers" not in failed


def test_plain_functions_run_in_threads_with_the_context_of_the_body(host: StepHost):
    assert run_one(host, kind="says_where_in_thread")["value"] == '["the body",false]'
    assert run_one(host, "run_2", kind="says_where")["value"] == '["the body",true]'


def test_a_function_that_returned_an_awaitable_is_called_on_the_loop_from_then_on(host: StepHost):
    assert run_one(host, kind="returns_awaitable")["value"] == "[false]"
    assert run_one(host, "run_2", kind="returns_awaitable")["value"] == "[false,true]"


def test_a_long_result_comes_whole(host: StepHost):
    letters = 3 * CHUNK_BYTES
    done = run_one(host, kind="large_result", letters=letters)
    assert json.loads(done["value"]) == "é" * letters
    host.deliver(1, "only")
    ended = host.receive_type("TURN")["ended"]
    assert json.loads(ended["value"]) == "é" * letters


def test_a_long_input_comes_whole(host: StepHost):
    assert host.load("fails")["t"] == "LOADED"
    start = json.dumps(start_of("calls", json.dumps({"kind": "says_where", "pad": "x" * 200_000})))
    assert host.load("calls")["t"] == "LOADED"
    pieces = [start[at : at + CHUNK_BYTES] for at in range(0, len(start), CHUNK_BYTES)]
    for number, piece in enumerate(pieces):
        last = number == len(pieces) - 1
        host.send({"t": "CHUNK", "id": 1, "n": number, "last": last, "data": piece})
    assert host.receive_type("DONE")["value"] == '["the body",true]'


def test_a_result_over_the_limit_is_a_permanent_failure():
    with StepHost(result_bytes=100) as host:
        error = run_one(host, kind="large_result", letters=100)["error"]
    assert (error["code"], error["retryable"]) == ("E_RESULT_TOO_LARGE", False)


def test_without_credit_runs_wait_and_heartbeats_do_not():
    with StepHost(credit_bytes=100) as host:
        assert host.load("calls")["t"] == "LOADED"
        host._decoder.take_consumed = lambda: 0  # type: ignore[method-assign]  # an executor that gives nothing back
        host.start("calls", '{"kind":"says_where"}', run="run_1")
        host.receive_type("DONE")
        host.start("calls", '{"kind":"says_where"}', run="run_2")
        for _ in range(2):
            host.receive_type("BEAT")
        assert not [message for message in host.idle if message.get("run") == "run_2"]
        host.send({"t": "CREDIT", "bytes": 1_000_000})
        assert host.receive_type("DONE")["run"] == "run_2"


def test_the_host_gives_credit_back(host: StepHost):
    assert host.load("calls")["t"] == "LOADED"
    pad = "x" * 60_000
    for number in range(20):
        host.send(start_of("calls", json.dumps({"kind": "says_where", "pad": pad}), run=f"run_{number}", go_until=None))
    given = host.receive_type("CREDIT")["bytes"]
    assert given >= 1024 * 1024


def test_a_blocked_loop_is_named_with_its_line(host: StepHost):
    assert host.load("calls")["t"] == "LOADED"
    host.start("calls", '{"kind":"blocks_loop","seconds":2.5}')
    beat = host.receive(holds(lambda message: message["blocked"] is not None))
    assert beat["blocked"] == {
        "run": "run_1",
        "item": "only",
        "file": "flows.py",
        "line": line_of("the blocking line"),
    }
    assert beat["lag"] > 0.4
    assert host.receive_type("DONE")["value"] == '"done"'
    host.receive(holds(lambda message: message["blocked"] is None))


def test_a_body_that_loops_is_named_without_an_item(host: StepHost):
    assert host.load("polls")["t"] == "LOADED"
    host.start("polls", run="run_9")
    beat = host.receive(holds(lambda message: message["blocked"] is not None))
    assert (beat["blocked"]["run"], beat["blocked"]["item"]) == ("run_9", None)
    assert abs(beat["blocked"]["line"] - line_of("the looping line")) <= 1


def test_a_ping_is_answered(host: StepHost):
    host.send({"t": "PING", "n": 41})
    beat = host.receive(holds(lambda message: message.get("n") == 41))
    assert beat["rss"] > 5_000_000
    assert beat["tokens"] == []
    assert beat["lag"] >= 0


def test_the_end_of_the_link_ends_the_host(host: StepHost):
    assert run_one(host, kind="says_where")["t"] == "DONE"
    host.socket.close()
    assert host.process.wait(PATIENCE) == 0


def test_the_end_of_the_link_ends_a_host_whose_loop_is_blocked(host: StepHost):
    assert host.load("polls")["t"] == "LOADED"
    host.start("polls")
    host.receive(holds(lambda message: message["blocked"] is not None))
    host.socket.close()
    assert host.process.wait(PATIENCE) == 0


def test_a_program_started_by_a_step_does_not_hold_the_link(host: StepHost):
    open_files = Path(f"/proc/{host.process.pid}/fdinfo")
    for info in open_files.iterdir() if open_files.is_dir() else ():
        flags = next(line for line in info.read_text().splitlines() if line.startswith("flags"))
        assert info.name in ("0", "1", "2") or int(flags.split()[1], 8) & os.O_CLOEXEC, info.name


def test_a_step_that_kills_the_process(host: StepHost):
    assert host.load("calls")["t"] == "LOADED"
    host.start("calls", '{"kind":"dies"}')
    assert host.process.wait(PATIENCE) == 9


def test_what_a_step_prints_stands_in_the_output(host: StepHost):
    assert run_one(host, kind="prints")["value"] == "null"
    host.send({"t": "DROP", "run": "run_1", "fence": 1}, {"t": "DRAIN"})
    assert host.receive_type("BYE")["reason"] == "drained"
    assert host.output().splitlines() == ["to the output", "to the errors"]


def test_log_lines_carry_their_run_and_item(host: StepHost):
    assert host.load("logs")["t"] == "LOADED"
    host.start("logs")
    host.receive_type("DONE")
    lines = [message for message in host.idle if message["t"] == "LOG"]
    assert [(line["run"], line["item"], line["level"], line["text"]) for line in lines] == [
        ("run_1", None, "info", "in the body of run_1"),
        ("run_1", "told", "warning", "in a thread"),
    ]


@pytest.mark.parametrize("blocks", [False, True], ids=["in-a-thread", "on-the-loop"])
def test_f12_lines_written_in_a_tight_loop_are_bounded_and_hold_nobody_up(host: StepHost, blocks: bool):
    assert host.load("floods")["t"] == "LOADED"
    assert host.load("noop3")["t"] == "LOADED"
    host.send({"t": "PING", "n": 1})
    before = host.receive(holds(lambda message: message.get("n") == 1))["rss"]
    host.start("floods", json.dumps({"seconds": 2.5, "blocks": blocks}))
    host.start("noop3", run="run_2")
    done = [host.receive_type("DONE") for _ in range(2)]
    assert [message["run"] for message in done] == (["run_1", "run_2"] if blocks else ["run_2", "run_1"])
    assert int(done[0 if blocks else 1]["value"]) > 200  # lines that it wrote
    told = host.receive(lambda message: message["t"] == "LOG" and message["level"] == "warning")
    beats = [message for message in host.idle if message["t"] == "BEAT"]
    lines = [message for message in host.idle if message["t"] == "LOG"]
    assert len(beats) >= 2
    assert max(beat["rss"] for beat in beats) < before + 30_000_000
    assert 0 < len(lines) <= 200 * 5
    assert "left out" in told["text"]


def test_a_body_that_swallows_its_cancellation_is_let_go_after_a_while(host: StepHost):
    host.begin("stubborn")
    asked = time.monotonic()
    host.send({"t": "CLOSE", "run": "run_1", "fence": 1, "cause": "cancel"})
    turns = [host.receive_type("TURN")]
    while turns[-1]["ended"] is None:
        turns.append(host.receive_type("TURN"))
    assert turns[-1]["ended"] == {"status": "cancelled"}
    assert 9 < time.monotonic() - asked < PATIENCE


def test_a_start_within_its_moment_starts_and_after_it_does_not(host: StepHost):
    assert host.load("noop3")["t"] == "LOADED"
    for number, until in enumerate((None, time.monotonic() - 1, soon())):
        host.start("noop3", run=f"run_{number}", go_until=until)
    started = [host.receive_type("TURN")["requests"][0]["started"] for _ in range(3)]
    assert started == [False, False, True]


def test_a_dropped_run_says_how_its_attempt_ended_and_nothing_more(host: StepHost):
    host.begin("closes")
    host.send({"t": "DROP", "run": "run_1", "fence": 1}, {"t": "CLOSE", "run": "run_1", "fence": 1, "cause": "x"})
    ended = host.receive_type("FAILED")
    assert (ended["item"], ended["error"]["code"]) == ("waits", "E_CANCELLED")
    host.send({"t": "PING", "n": 1})
    host.receive(holds(lambda message: message.get("n") == 1))
    assert not [message for message in host.idle if message["t"] not in ("BEAT", "LOG")]


def test_many_runs_share_frames(host: StepHost):
    assert host.load("noop3")["t"] == "LOADED"
    count = 200
    host.send(*(start_of("noop3", run=f"run_{n}") for n in range(count)))
    seqs = dict.fromkeys((f"run_{n}" for n in range(count)), 0)
    ended = 0
    while ended < count:
        message = host.receive()
        if message["t"] == "DONE":
            run = message["run"]
            seqs[run] += 1
            host.send(deliver_of(seqs[run], message["item"], run=run))
        elif message["t"] == "TURN" and message["ended"]:
            assert message["ended"] == {"status": "succeeded", "value": '{"ok":true}'}
            ended += 1
    assert set(seqs.values()) == {3}


def test_a_frame_that_is_no_frame_ends_the_host(host: StepHost):
    host.socket.sendall(b"\x00\x00\x00\x02{}")
    assert host.receive_type("BYE")["reason"].startswith("protocol: ")
    assert host.process.wait(PATIENCE) == 70


def test_a_long_history_does_not_hold_up_the_neighbours(host: StepHost):
    assert host.load("noop3")["t"] == "LOADED"
    history = [
        {"seq": 1, "item": "s0", "kind": "step", "after": 0, "status": "succeeded", "at": AT, "value": "1"},
        {"seq": 2, "item": "s1", "kind": "step", "after": 1, "status": "succeeded", "at": AT, "value": "1"},
    ]
    host.start("noop3", history=2, go_until=None)
    host.send({"t": "HISTORY", "run": "run_1", "fence": 1, "items": history, "last": True})
    turn = host.receive_type("TURN")
    assert (turn["after"], [request["item"] for request in turn["requests"]]) == (2, ["s2"])


def test_without_a_socket_the_host_says_what_it_needs():
    done = subprocess.run(
        [sys.executable, "-m", "anthares44.automation.host", "77"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 70
    assert "needs a connected socket" in done.stderr


BROKEN = {
    "broken.py": ("import os\nlast = os.environ[\n", (2, 18), "SyntaxError: '[' was never closed"),
    "folder/entry.py": ("import sys\nsys.exit('no settings')\n", (2, 1), "SystemExit: no settings"),
    "json.py": ("import nowhere\n", (1, 1), "ModuleNotFoundError: No module named 'nowhere'"),
}


@pytest.mark.parametrize("entry", BROKEN)
def test_a_bundle_that_cannot_be_imported_says_where(entry: str, host: StepHost, tmp_path: Path):
    text, place, said = BROKEN[entry]
    (tmp_path / entry).parent.mkdir(exist_ok=True)
    (tmp_path / entry).write_text(text, "utf-8")
    answer = host.load("w", entry=entry, path=tmp_path)
    assert answer["t"] == "LOAD_FAILED"
    assert answer["code"] == "E_BUNDLE_IMPORT"
    assert (answer["message"], answer["file"], (answer["line"], answer["column"])) == (said, entry, place)


def test_a_bundle_finds_its_local_modules_and_hides_none_of_pythons(host: StepHost, tmp_path: Path):
    (tmp_path / "prices.py").write_text("BOOK = 12", "utf-8")
    flow = (
        "import json, prices\n"
        "from anthares44.automation import workflow\n"
        "@workflow('shop', version=1)\n"
        "async def shop(ctx, input):\n"
        "    return [prices.BOOK, json.loads('[1]')]\n"
    )
    (tmp_path / "logging.py").write_text(flow, "utf-8")
    assert host.load("shop", entry="logging.py", path=tmp_path)["t"] == "LOADED"
    host.start("shop")
    assert host.receive_type("TURN")["ended"] == {"status": "succeeded", "value": "[12,[1]]"}
    assert not list(tmp_path.rglob("*.pyc"))


CARELESS = {
    "fetches": "socket.getaddrinfo",
    "connects": "socket.connect",
    "runs_a_program": "subprocess.Popen",
    "runs_a_command": "os.system",
    "writes": "open on ",
}
if sys.version_info >= (3, 13):  # older interpreters do not tell of it
    CARELESS["sleeps"] = "time.sleep"


@pytest.mark.parametrize("does", CARELESS)
def test_input_and_output_past_the_loop_blocks_a_body_too(does: str, host: StepHost, tmp_path: Path):
    assert host.load("careless")["t"] == "LOADED"
    host.start("careless", json.dumps({"does": does, "file": str(tmp_path / "out")}))
    diverged = host.receive_type("DIVERGED")
    assert (diverged["code"], diverged["file"]) == ("E_IO_OUTSIDE_STEP", "flows.py")
    assert diverged["seen"].startswith(CARELESS[does])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("does", ["reads", "imports"])
def test_reading_a_file_and_importing_in_a_body_are_let_through(does: str, host: StepHost):
    assert host.load("careless")["t"] == "LOADED"
    host.start("careless", json.dumps({"does": does}))
    assert host.receive_type("TURN")["ended"] == {"status": "succeeded", "value": '"did it"'}
