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
from functools import partial
from pathlib import Path

from processors.executor.hosts.account import Account
from processors.executor.hosts.output import Output

LAUNCH = Path(__file__).with_name("launch.py").read_text(encoding="utf-8")
KEPT_VARIABLES = ("PATH", "LANG")


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start one host. `home` exists, belongs to the account, and is the host's alone. `memory` is in bytes."""

    interpreter: str
    account: Account
    home: Path
    environment: Mapping[str, str]
    memory: int = 0


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
    """Made by `spawn`; then `watch`, `drain` and `take_socket` (our end of descriptor 3)."""

    def __init__(self, popen: "subprocess.Popen[bytes]", end: socket.socket, plan: Plan, output: Output) -> None:
        self.pid = popen.pid
        self.returncode: int | None = None
        self._popen = popen
        self._end: socket.socket | None = end
        self._pipes = {"stdout": popen.stdout, "stderr": popen.stderr}
        self._transports: list[asyncio.ReadTransport] = []
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
        ids = (-1 if number is None else number for number in (account.uid, account.gid))
        numbers = (theirs.fileno(), os.getpid(), *ids, plan.memory)
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

    def watch(self, exited: Callable[[int], None]) -> None:
        """Wait for the end. At once after `spawn`, or nobody would reap the process."""
        self._exited = exited
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or a kernel without it
            threading.Thread(target=self._wait_in_thread, args=(loop,), daemon=True).start()
        else:
            loop.add_reader(descriptor, self._ended_by_descriptor, descriptor)

    async def drain(self) -> None:
        """Read what it prints, to the end of both pipes; they are closed where it has ended meanwhile."""
        loop = asyncio.get_running_loop()
        for stream in ("stdout", "stderr"):
            if self.returncode is not None:
                return
            pipe = self._pipes.pop(stream)
            transport, _ = await loop.connect_read_pipe(partial(self._output.reader, stream), pipe)
            self._transports.append(transport)

    def take_socket(self) -> socket.socket:
        """It is the caller's from now on."""
        end = self._end
        if end is None:
            raise ValueError(f"the socket of host {self.pid} was taken before")
        self._end = None
        return end

    def resident(self) -> int | None:
        """Bytes that it holds in memory now; None where the system does not tell, or it is gone."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return None

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
        for transport in self._transports:
            transport.close()

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
        for left in (self._end, *self._pipes.values()):
            if left is not None:  # the start was broken off
                left.close()
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
