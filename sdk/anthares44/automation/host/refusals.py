"""Input and output in a body that no event loop sees: plain sockets, programs, files written, time.sleep.

An audit hook of the interpreter, so it lasts as long as the process. It acts only while a run's own loop is
running, which is while a body is played; steps and the host itself are not concerned. Reading a file is let
through: importing a module in a body does just that.
"""

import os
import sys
from asyncio.events import _get_running_loop
from typing import Any

from anthares44.automation.loop import RunLoop

_REFUSED = frozenset(
    {
        "socket.connect",
        "socket.bind",
        "socket.sendto",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "socket.gethostbyaddr",
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "time.sleep",
    },
)
_WRITING = os.O_WRONLY | os.O_RDWR


def watch_bodies() -> None:
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _REFUSED or (event == "open" and _writes(arguments)):
        loop = _get_running_loop()
        if isinstance(loop, RunLoop):
            loop.owner.refuse_io(f"{event} on {arguments[0]!r}" if event == "open" else event)


def _writes(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 else 0  # noqa: PLR2004 - path, mode, flags
    return isinstance(flags, int) and bool(flags & _WRITING)
