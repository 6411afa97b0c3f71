"""A kept child: started through the keeper, so that it never outlives us, with its log in a file.

`stop` asks and waits, `kill` does not ask. Both return when the child is gone.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ops.embedded.account import OURS, Account
from schemas.errors import Unavailable

KEEPER = Path(__file__).with_name("keeper.py")
TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run and how to end it. `cleanup` is removed if this process dies without stopping the child."""

    name: str
    command: Sequence[str]
    cwd: Path
    log: Path
    account: Account = OURS
    env: Mapping[str, str] | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 10.0
    cleanup: Path | None = None

    def as_json(self) -> str:
        return json.dumps(
            {
                "command": list(self.command),
                "cwd": str(self.cwd),
                "log": str(self.log),
                "env": {**clean_environment(), **(self.env or {})},
                "uid": self.account.uid,
                "gid": self.account.gid,
                "stop_signal": int(self.stop_signal),
                "grace": self.grace,
                "cleanup": str(self.cleanup) if self.cleanup else None,
            }
        )


def clean_environment() -> dict[str, str]:
    """The little that servers need: variables of the user's (PG*, broker addresses, proxies) must not steer them."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


class Kept:
    """One running child."""

    def __init__(self, plan: Plan, keeper: asyncio.subprocess.Process, pid: int) -> None:
        self._plan = plan
        self._keeper = keeper
        self.pid = pid

    @classmethod
    async def start(cls, plan: Plan) -> "Kept":
        keeper = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", str(KEEPER)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=clean_environment(),
            start_new_session=True,  # Ctrl-C in a terminal goes to us, and we stop the children in order
        )
        assert keeper.stdin is not None  # noqa: S101  a pipe was asked for
        assert keeper.stdout is not None  # noqa: S101  same
        try:
            # Not as an argument: the plan may hold passwords, and command lines can be read by everyone.
            keeper.stdin.write(plan.as_json().encode() + b"\n")
            word, _, rest = (await keeper.stdout.readline()).decode().strip().partition(" ")
        except BaseException:  # cancelled: nobody will ever hold this child
            keeper.stdin.close()
            await keeper.wait()
            raise
        if word != "pid":
            await keeper.wait()
            raise Unavailable("E_EMBEDDED_STACK", f"{plan.name} cannot be started: {rest or 'no answer'}")
        return cls(plan, keeper, int(rest))

    @property
    def is_running(self) -> bool:
        return self._keeper.returncode is None

    async def wait(self) -> int:
        """Exit code of the child; 128 + n when signal n ended it."""
        return await self._keeper.wait()

    async def stop(self) -> None:
        """Ask, wait for the grace period of the plan, then kill."""
        stdin = self._keeper.stdin
        if stdin is not None and self.is_running:
            stdin.write(b"stop\n")
            stdin.close()
        await self._keeper.wait()

    async def kill(self, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """End it at once, as a crash would."""
        self.send(with_signal)
        await self._keeper.wait()
        if self._keeper.stdin is not None:
            self._keeper.stdin.close()

    def send(self, one: signal.Signals) -> None:
        """A signal to the child; nothing happens to one that is gone."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):  # it may end by itself in this very moment
                os.kill(self.pid, one)

    def log_tail(self) -> str:
        """The last lines of its log, for a message."""
        try:
            text = self._plan.log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.strip().splitlines()[-8:])

    def failure(self, what: str) -> Unavailable:
        tail = self.log_tail()
        shown = f" Its last lines:\n{tail}" if tail else ""
        return Unavailable("E_EMBEDDED_STACK", f"{self._plan.name} {what} (log: {self._plan.log}).{shown}")


async def run_to_end(plan: Plan, seconds: float) -> None:
    """Run a child that ends by itself; anything but exit code 0 within the time is a failure with its log."""
    kept = await Kept.start(plan)
    try:
        async with asyncio.timeout(seconds):
            code = await kept.wait()
    except TimeoutError:
        raise kept.failure(f"did not end within {seconds:.0f} s") from None
    finally:
        await kept.stop()
    if code != 0:
        raise kept.failure(f"failed with code {code}")


class Server:
    """A server of the stack, as one kept child at a time: started by `start` of each kind, ended here."""

    name: str

    def __init__(self) -> None:
        self._kept: Kept | None = None

    @property
    def pid(self) -> int:
        """The server's process; for those who measure it."""
        if self._kept is None:
            raise Unavailable("E_EMBEDDED_STACK", f"{self.name} is not running.")
        return self._kept.pid

    async def stop(self) -> None:
        """In good order: what is committed is on disk."""
        if self._kept is not None:
            await self._kept.stop()
            self._kept = None

    async def kill_immediately(self) -> None:
        """End it as a crash would."""
        if self._kept is not None:
            await self._kept.kill()
            self._kept = None

    async def ended(self) -> str:
        """Returns only when it ended: what can be said about it."""
        if self._kept is None:
            return f"{self.name} is not running."
        code = await self._kept.wait()
        return self._kept.failure(f"ended with code {code}").message
