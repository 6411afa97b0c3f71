"""A real step host in a process of its own, spoken to over its socket as an executor does."""

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from anthares44.automation.wire import FrameDecoder, Message, encode_frame

BUNDLES = Path(__file__).with_name("bundles") / "python"
AT = "2026-11-29T20:00:00.000000+00:00"
PATIENCE = 20.0
IDLE = ("BEAT", "LOG")


def soon() -> float:
    return time.monotonic() + 60


class StepHost:
    """`with StepHost() as host`: greeted and welcomed; ended with its process at the end."""

    def __init__(self, **limits: Any) -> None:
        self._limits = limits
        self.idle: list[Message] = []

    def __enter__(self) -> Self:
        ours, theirs = socket.socketpair()
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONHASHSEED": "0",
            "TZ": "UTC",
        }
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "anthares44.automation.host", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.socket = ours
        self.socket.settimeout(PATIENCE)
        self._decoder = FrameDecoder()
        self._inbox: list[Message] = []
        self.hello = self.receive()
        self.send({"t": "WELCOME", "version": 1, "limits": self._limits, "redact_exempt": []})
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def send(self, *messages: Message) -> None:
        """All in one frame."""
        self.socket.sendall(encode_frame(list(messages)))

    def receive(self, wanted: Callable[[Message], bool] = lambda message: message["t"] not in IDLE) -> Message:
        """The next message that is wanted; heartbeats and log lines are set aside in `idle`."""
        deadline = time.monotonic() + PATIENCE
        while True:
            while self._inbox:
                message = self._inbox.pop(0)
                if wanted(message):
                    return message
                self.idle.append(message)
            assert time.monotonic() < deadline, f"nothing wanted came; seen {self.idle}"
            data = self.socket.recv(1 << 16)
            assert data, f"the host has ended: {self.output()}"
            self._inbox = self._decoder.feed(data)
            consumed = self._decoder.take_consumed()
            if consumed:
                with contextlib.suppress(BrokenPipeError):  # it may have ended after what it said
                    self.send({"t": "CREDIT", "bytes": consumed})

    def receive_type(self, kind: str) -> Message:
        return self.receive(lambda message: message["t"] == kind)

    def until_begun(self, run: str, item: str) -> None:
        """Its function is being called: what is only queued for a thread could still be cancelled."""
        deadline = time.monotonic() + PATIENCE
        for number in itertools.count(1):
            assert time.monotonic() < deadline, f"{run} {item} is not being called; seen {self.idle}"
            self.send({"t": "PING", "n": number})
            beat = self.receive(lambda message, n=number: message["t"] == "BEAT" and message.get("n") == n)
            if any(token[:2] == [run, item] and token[2] > 0 for token in beat["tokens"]):
                return

    def output(self) -> str:
        """What the process wrote; only once it has ended."""
        self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        return self.process.stdout.read().decode()

    def load(self, workflow: str, version: str = "1", entry: str = "flows.py", path: Path = BUNDLES) -> Message:
        self.send({"t": "LOAD", "path": str(path), "entry": entry, "workflow": workflow, "version": version})
        return self.receive(lambda message: message["t"] in ("LOADED", "LOAD_FAILED"))

    def start(self, workflow: str, given: str = "null", *, run: str = "run_1", **more: Any) -> None:
        self.send(start_of(workflow, given, run=run, **more))

    def deliver(self, seq: int, item: str, *, run: str = "run_1", **more: Any) -> None:
        self.send(deliver_of(seq, item, run=run, **more))

    def begin(self, workflow: str, given: str = "null", **more: Any) -> Message:
        """Load and start; the first turn."""
        assert self.load(workflow, more.get("version", "1"))["t"] == "LOADED"
        self.start(workflow, given, **more)
        return self.receive_type("TURN")


def start_of(workflow: str, given: str = "null", *, run: str = "run_1", **more: Any) -> Message:
    message = {
        "t": "START",
        "run": run,
        "fence": 1,
        "workflow": workflow,
        "version": "1",
        "generation": 0,
        "input": given,
        "started_at": AT,
        "seed": "seed",
        "key": f"key-of-{run}",
        "history": 0,
        "go_until": soon(),
    }
    return message | more


def deliver_of(seq: int, item: str, *, run: str = "run_1", **more: Any) -> Message:
    message = {
        "t": "DELIVER",
        "run": run,
        "fence": 1,
        "seq": seq,
        "item": item,
        "outcome": "succeeded",
        "at": AT,
        "go_until": soon(),
    }
    return message | more
