"""Runs one child and ends with it; when the starting process is gone, however it went, ends the child.

A program of its own, standard library only. Its standard input is a pipe that only the starter holds: the
first line is the plan as JSON; then "stop" and end-of-file are a wish, end-of-file alone means that the
starter died, and then the temporary folder goes too. It answers with one line, "pid N" or "error TEXT".
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

STOP_WORD = b"stop"
PR_SET_PDEATHSIG = 1


def follow_into_death(with_signal: int) -> Callable[[], None] | None:
    """Linux: the child is signalled should this keeper itself be killed. Elsewhere only the pipe guards."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, with_signal, 0, 0, 0) and None


def launch(plan: dict[str, Any]) -> "subprocess.Popen[bytes]":
    account = {}
    if plan["uid"] is not None:
        account = {"user": plan["uid"], "group": plan["gid"], "extra_groups": []}
    with Path(plan["log"]).open("ab") as log:
        return subprocess.Popen(  # noqa: S603  the command comes from our own launcher
            plan["command"],
            cwd=plan["cwd"],
            env=plan["env"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # This process has one thread at this point, so code between fork and exec is safe.
            preexec_fn=follow_into_death(plan["stop_signal"]),  # noqa: PLW1509
            umask=0o077,
            **account,
        )


def read_line() -> bytes:
    """Unbuffered: a buffer's lock, held by a waiting thread, would break the end of the interpreter."""
    line = b""
    while not line.endswith(b"\n") and (part := os.read(0, 65536)):
        line += part
    return line


def obey(child: "subprocess.Popen[bytes]", plan: dict[str, Any], starter_died: threading.Event) -> None:
    """Wait for the wish or the death of the starter, then end the child within the grace period."""
    if read_line().strip() != STOP_WORD:
        starter_died.set()
    child.send_signal(plan["stop_signal"])
    try:
        child.wait(plan["grace"])
    except subprocess.TimeoutExpired:
        child.kill()


def main() -> int:
    plan = json.loads(read_line())
    try:
        child = launch(plan)
    except (OSError, subprocess.SubprocessError) as problem:
        sys.stdout.write(f"error {problem}\n")
        return 1
    sys.stdout.write(f"pid {child.pid}\n")
    sys.stdout.flush()
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # the pipe alone decides
    starter_died = threading.Event()
    threading.Thread(target=obey, args=(child, plan, starter_died), daemon=True).start()
    code = child.wait()
    if starter_died.is_set() and plan["cleanup"]:
        shutil.rmtree(plan["cleanup"], ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
