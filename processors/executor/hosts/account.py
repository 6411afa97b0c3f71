"""Which account step hosts run under: an unprivileged one when we are root and it can reach what it needs.

Nothing is created, re-owned or opened up for it. Where that account cannot start the interpreter or import
the SDK (both may lie in a folder that others cannot enter), hosts keep our own account and the log says so.
"""

import asyncio
import os
import pwd
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from processors.executor.hosts.settings import HostSettings

UNPRIVILEGED = ("nobody", "daemon")
PROBE = "import os, sys; os.chdir(sys.argv[1]); import anthares44.automation.host"
PROBE_SECONDS = 20.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Account:
    """Numbers of the account a host drops to; both None: it keeps ours."""

    uid: int | None = None
    gid: int | None = None


def wanted_account(settings: HostSettings) -> Account:
    """The account that the settings ask for, not yet tried."""
    if os.geteuid() != 0 or not settings.drop_root:
        return Account()
    if settings.account is not None:
        return Account(*settings.account)
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(entry.pw_uid, entry.pw_gid)
    _log.warning("step_hosts_keep_root", reason=f"this system has none of the accounts {', '.join(UNPRIVILEGED)}")
    return Account()


def open_for(account: Account, folder: Path) -> None:
    """Let the account enter a folder of ours through its group, and nobody else."""
    if account.gid is not None:
        os.chown(folder, -1, account.gid)
        folder.chmod(0o710)


def close_to_others(folder: Path) -> None:
    folder.chmod(0o700)


async def usable_account(settings: HostSettings, folder: Path, environment: Mapping[str, str]) -> Account:
    """The wanted account when it can start a host and enter `folder` (opened for its group), else our own."""
    account = wanted_account(settings)
    if account.uid is None:
        return account
    open_for(account, folder)
    problem = await asyncio.to_thread(_try, settings.interpreter, account, folder, environment)
    if problem is None:
        return account
    _log.warning(
        "step_hosts_keep_root",
        reason=f"uid {account.uid} cannot run {settings.interpreter} with the SDK: {problem}",
        way_out="install both where others can read them, or run the executor as an ordinary user",
    )
    close_to_others(folder)
    return Account()


def _try(interpreter: str, account: Account, folder: Path, environment: Mapping[str, str]) -> str | None:
    """Ask the system itself: modes, ACLs and mounts all count. None when it works."""
    try:
        answer = subprocess.run(  # noqa: S603  our own interpreter and a fixed text
            [interpreter, "-P", "-c", PROBE, str(folder)],
            cwd="/",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    if answer.returncode == 0:
        return None
    lines = answer.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else f"exit {answer.returncode}"
