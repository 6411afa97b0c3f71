"""Which account the children run under: our own, or an existing unprivileged one when we are root.

PostgreSQL refuses to run as root. Nothing is created or re-owned for it, and no folder is opened up:
where that account cannot enter, the caller copies or chooses another place.
"""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import Refused, Unavailable

# initdb asks the system for the name of its account, so a merely free number does not do.
UNPRIVILEGED = ("nobody", "daemon")


@dataclass(frozen=True, slots=True)
class Account:
    """Numbers of the account a child drops to; both None: no change of account."""

    uid: int | None
    gid: int | None

    def owns(self, path: Path) -> None:
        """Hand over something that we made ourselves."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    def can_enter(self, folder: Path) -> bool:
        """Asked of the system itself: modes, ACLs and mounts all count."""
        return self._tries('cd -- "$1"', folder)

    def can_run(self, binary: Path) -> bool:
        return self._tries('exec "$1" --version', binary)

    def _tries(self, script: str, path: Path) -> bool:
        if self.uid is None:
            return True
        answer = subprocess.run(  # noqa: S603  fixed script, the path is an argument
            ["/bin/sh", "-c", script, "sh", str(path)],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self.uid,
            group=self.gid,
            extra_groups=[],
            check=False,
        )
        return answer.returncode == 0


OURS = Account(None, None)


def choose_account(data: Path) -> Account:
    """Our own account; as root the owner of existing data, else the first unprivileged one this system has."""
    if os.geteuid() != 0:
        if data.exists() and data.stat().st_uid != os.geteuid():
            raise Refused(
                "E_CONFIG",
                f"{data} belongs to another account (it was perhaps made as root). "
                "Choose another folder to persist in, or run as that account.",
            )
        return OURS
    if data.exists() and (owner := data.stat()).st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(entry.pw_uid, entry.pw_gid)
    raise Unavailable(
        "E_EMBEDDED_STACK",
        f"PostgreSQL does not run as root, and this system has none of the accounts {', '.join(UNPRIVILEGED)} "
        "to run it under. Run as an ordinary user, or give the address of a PostgreSQL of your own.",
    )
