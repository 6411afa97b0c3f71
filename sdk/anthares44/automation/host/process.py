"""The host itself: takes the executor's messages, keeps the runs, answers with turns and outcomes.

Each handler is called from the loop, in the order of the messages. A message that breaks the protocol, or
a fault of our own, ends the process with BYE and exit 70: its runs go on in another host.
"""

import asyncio
import gc
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from anthares44.automation.codec import RESULT_BYTES, Codec
from anthares44.automation.endings import Settings
from anthares44.automation.host import told
from anthares44.automation.host.attempts import Attempt, StepRunner
from anthares44.automation.host.bundle import LoadError, load
from anthares44.automation.host.lines import Lines
from anthares44.automation.host.link import EXIT_DRAINED, Link
from anthares44.automation.host.pulse import Pulse
from anthares44.automation.host.seats import Seats
from anthares44.automation.redaction import Redaction
from anthares44.automation.wire import CREDIT_BYTES, VERSIONS, Message, WireError
from anthares44.automation.workflow import Workflow

MOST_ITEMS = 10_000
CAPABILITIES = ("step", "sleep", "timer", "cancel_item", "resume", "chunks", "credit")


class Host:
    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._link = Link(sock, loop, self._receive)
        lines = Lines(loop, self._link.send, lambda: not self._link.congested)
        self._settings = Settings(Codec(), MOST_ITEMS, "", lines.put, loop)
        self._runner = StepRunner(loop, self._settings, self._done, self._failed)
        self._seats = Seats(loop, self._link.tell, self._runner, self._settings)
        self._workflows: dict[tuple[str, str], Workflow] = {}
        self._draining = False
        self._pulse = Pulse(
            loop,
            self._link.send_now,
            lambda: list(self._runner.running.values()),
            lambda: self._settings.root,
        )
        seats = self._seats
        self._handlers: dict[str, Callable[[Message], None]] = {
            "WELCOME": self._welcome,
            "LOAD": self._load,
            "START": self._start,
            "HISTORY": seats.history,
            "DELIVER": seats.deliver,
            "RUN": seats.run_again,
            "CANCEL_ITEM": seats.cancel_item,
            "CLOSE": seats.close,
            "DROP": seats.drop,
            "DRAIN": self._drain,
            "PING": self._ping,
            "CREDIT": self._link.credit,
        }

    def open(self) -> None:
        self._loop.set_exception_handler(self._failed_callback)
        self._link.open()
        self._link.send(
            {
                "t": "HELLO",
                "versions": list(VERSIONS),
                "language": "python",
                "sdk": _sdk_version(),
                "python": ".".join(map(str, sys.version_info[:3])),
                "capabilities": list(CAPABILITIES),
                "pid": os.getpid(),
            },
        )
        self._pulse.start()

    # -- from the executor --------------------------------------------------------------------------

    def _receive(self, messages: list[Message]) -> None:
        for message in messages:
            handler = self._handlers.get(message["t"])
            if handler is None:
                raise WireError(f"unknown message type {message['t']!r}")
            handler(message)
        self._end_if_drained()

    def _end_if_drained(self) -> None:
        if self._draining and not self._seats.taken and not self._runner.running:
            self._link.finish("drained", EXIT_DRAINED)

    def _failed_callback(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A fault of ours in a callback must not leave runs waiting for ever; one of a step is only told."""
        callback = getattr(context.get("handle"), "_callback", None)
        error = context.get("exception")
        if error is not None and str(getattr(callback, "__module__", "")).startswith("anthares44."):
            self._link.broken("internal", error)
        loop.default_exception_handler(context)

    def _welcome(self, message: Message) -> None:
        if message["version"] not in VERSIONS:
            raise WireError(f"the executor chose version {message['version']}; offered were {list(VERSIONS)}")
        limits: dict[str, Any] = message.get("limits") or {}
        redaction = Redaction(message.get("redact_exempt") or ())
        self._settings.codec = Codec(redaction, limits.get("result_bytes") or RESULT_BYTES)
        self._settings.items = limits.get("items") or MOST_ITEMS
        self._link.resize(limits.get("credit_bytes") or CREDIT_BYTES)

    def _load(self, message: Message) -> None:
        workflow, version = message["workflow"], message["version"]
        self._settings.root = message["path"]
        try:
            found = load(message["path"], message["entry"], workflow, version)
        except LoadError as error:
            self._link.send(
                {
                    "t": "LOAD_FAILED",
                    "workflow": workflow,
                    "version": version,
                    "code": error.code,
                    "message": error.message,
                    "file": error.file,
                    "line": error.line,
                    "column": error.column,
                },
            )
            return
        self._workflows[workflow, version] = found
        gc.collect()
        gc.freeze()  # what is loaded now stays: later collections need not walk it
        self._link.send(
            {"t": "LOADED", "workflow": workflow, "version": version, "concurrency": found.concurrency},
        )

    def _start(self, message: Message) -> None:
        if self._draining:
            raise WireError("a START after DRAIN")
        self._seats.start(message, self._workflows.get((message["workflow"], message["version"])))

    def _drain(self, _: Message) -> None:
        self._draining = True

    def _ping(self, message: Message) -> None:
        self._link.send(self._pulse.beat(message["n"]))

    # -- from steps ---------------------------------------------------------------------------------

    def _done(self, attempt: Attempt, text: str) -> None:
        self._told(attempt, told.done(attempt, text))

    def _failed(self, attempt: Attempt, error: dict[str, Any], lingers: bool) -> None:
        self._told(attempt, told.failed(attempt, error, lingers=lingers))

    def _told(self, attempt: Attempt, text: str) -> None:
        self._seats.reported(attempt)
        self._link.tell(text)
        if self._draining:
            self._loop.call_soon(self._end_if_drained)


def _sdk_version() -> str:
    from anthares44.automation import __version__  # noqa: PLC0415 - the package's front imports no host

    return __version__
