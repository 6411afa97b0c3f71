"""The process: takes descriptor 3 (or the one named as its argument), runs until the executor lets it go."""

import asyncio
import contextlib
import gc
import os
import socket
import sys
from pathlib import Path

from anthares44.automation.host.generators import watch_generators
from anthares44.automation.host.link import EXIT_BROKEN
from anthares44.automation.host.process import Host
from anthares44.automation.host.refusals import watch_bodies

DESCRIPTOR = 3
# Parked bodies are many long-lived objects: collecting after every 700 new ones would walk them for nothing.
_GC_THRESHOLDS = (10_000, 20, 50)


def _take_socket(arguments: list[str]) -> socket.socket:
    descriptor = int(arguments[0]) if arguments else DESCRIPTOR
    os.set_inheritable(descriptor, False)  # or a program started by a step would keep the link open
    return socket.socket(fileno=descriptor)


def _drop_working_folder() -> None:
    # `-m` puts the folder we happen to stand in first; the bundle alone is the author's code.
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", str(Path.cwd())):
        del sys.path[0]


def main() -> None:
    try:
        link = _take_socket(sys.argv[1:])
    except (OSError, ValueError) as error:
        print(f"the step host needs a connected socket as descriptor {DESCRIPTOR}: {error}", file=sys.stderr)  # noqa: T201 - nobody else to tell
        raise SystemExit(EXIT_BROKEN) from None
    _drop_working_folder()
    sys.dont_write_bytecode = True  # the bundle's folder stays what its digest says
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    gc.set_threshold(*_GC_THRESHOLDS)
    watch_bodies()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    Host(link, loop).open()
    while True:  # until the process ends: what a step's own tasks do to the loop is no end of its neighbours
        loop.call_soon(watch_generators)  # a loop that starts sets hooks of its own
        with contextlib.suppress(SystemExit, KeyboardInterrupt):  # whoever awaits the task that exits is told
            loop.run_forever()


if __name__ == "__main__":
    main()
