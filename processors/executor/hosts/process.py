"""One host process: started in a session of its own, watched by pid, ended as a group.

`exited` is called exactly once, on the event loop, after the process is gone and its group was killed.
Its home folder is removed then. Standard output and error are drained from start to end.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from processors.executor.hosts.account import Account
from processors.executor.hosts.output import Output

LAUNCH = Path(__file__).with_name("launch.py").read_text(encoding="utf-8")
KEPT_VARIABLES = ("PATH", "LANG")


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start one host. `home` exists, belongs to the account, and is the host's alone."""

    interpreter: str
    account: Account
    home: Path
    environment: Mapping[str, str]


def environment_for(names: tuple[str, ...], extra: Mapping[str, str]) -> dict[str, str]:
    """The allow-list: nothing of the service's own (addresses, secrets) reaches the author's code."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT_VARIABLES or name in names or name.startswith("LC_")
    }
    kept.setdefault("PATH", os.defpath)
    fixed = {
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return {**kept, **extra, **fixed}


class HostProcess:
    """Made by `spawn`. `socket` is our end of descriptor 3; it belongs to the caller."""

    def __init__(self, popen: "subprocess.Popen[bytes]", end: socket.socket, plan: Plan, output: Output) -> None:
        self.pid = popen.pid
        self.socket = end
        self.returncode: int | None = None
        self._popen = popen
        self._home = plan.home
        self._output = output
        self._exited: Callable[[int], None] | None = None
        self._gone = asyncio.Event()

    @classmethod
    def spawn(cls, plan: Plan, output: Output) -> "HostProcess":
        """Raises OSError. Takes a few milliseconds of the loop, and must run in its thread.

        The signal for a parent's death follows the thread that forked: one of a pool may end before us.
        """
        ours, theirs = socket.socketpair()
        account = plan.account
        numbers = (theirs.fileno(), os.getpid(), *(-1 if n is None else n for n in (account.uid, account.gid)))
        try:
            popen = subprocess.Popen(  # noqa: S603  our own interpreter and our own text
                [plan.interpreter, "-P", "-c", LAUNCH, *map(str, numbers), str(plan.home)],
                cwd="/",
                env={**plan.environment, "HOME": str(plan.home)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        return cls(popen, ours, plan, output)

    async def watch(self, exited: Callable[[int], None]) -> None:
        """Begin to drain output and to wait for the end."""
        self._exited = exited
        loop = asyncio.get_running_loop()
        if hasattr(os, "pidfd_open"):
            descriptor = os.pidfd_open(self.pid)
            loop.add_reader(descriptor, self._ended_by_descriptor, descriptor)
        else:
            threading.Thread(target=self._wait_in_thread, args=(loop,), daemon=True).start()
        for stream, pipe in (("stdout", self._popen.stdout), ("stderr", self._popen.stderr)):
            await self._drain(stream, pipe)

    async def _drain(self, stream: str, pipe: IO[bytes] | None) -> None:
        assert pipe is not None  # noqa: S101  a pipe was asked for
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: self._output.reader(stream), pipe)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    async def stop(self, within: float) -> None:
        """Ask its group to end, and make it end when the time (seconds) is over."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(within):
                await self._gone.wait()
        except TimeoutError:
            self.kill()
            await self._gone.wait()

    def _signal(self, number: signal.Signals) -> None:
        """To the whole group. Only before the process is reaped: its number may be another's afterwards."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone in this moment
                os.killpg(self.pid, number)

    def _ended_by_descriptor(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        self.kill()  # what it forked; it is a zombie still, so the number is its own
        self._reaped(self._popen.wait())

    def _wait_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        code = self._popen.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._reaped, code)

    def _reaped(self, code: int) -> None:
        self.returncode = code
        self._gone.set()
        asyncio.get_running_loop().run_in_executor(None, shutil.rmtree, self._home, True)
        if self._exited is not None:
            self._exited(code)


def describe_exit(code: int) -> str:
    """`exit code 3` or `signal SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
