"""Bundles on disk: the files of a published code workflow, unpacked once per digest.

The folder is private to this process and its hosts (through their group), and nothing in it can be written by
a host that runs under another account. It is removed at close, or by the next owner of one.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from processors.executor.hosts.account import Account
from schemas.errors import Refused

PREFIX = "a44-hosts-"
LOCK = "owner.lock"


@dataclass(frozen=True, slots=True)
class CodeBundle:
    """A published code workflow. `files` maps relative paths to text; `entry` is the one that declares it.

    `redact_exempt` are the project's field names that are not redacted in results.
    """

    digest: str
    files: Mapping[str, str]
    entry: str
    workflow: str
    version: str
    redact_exempt: tuple[str, ...] = ()


class BundleFolder:
    """`root` holds the bundles and the homes of the hosts.

    A lock says that its owner lives: what others left behind when they were killed is removed by the next one.
    """

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            self._lock = _locked(self.root)
        except OSError:
            shutil.rmtree(self.root, ignore_errors=True)
            raise
        self._unpacking: dict[str, asyncio.Future[Path]] = {}
        self._homes = 0

    def new_home(self, account: Account) -> Path:
        """A folder for one host process alone."""
        self._homes += 1
        home = self.root / f"home-{self._homes}"
        home.mkdir(mode=0o700)
        if account.uid is not None and account.gid is not None:
            shutil.chown(home, account.uid, account.gid)
        return home

    async def unpack(self, bundle: CodeBundle, account: Account) -> Path:
        """The folder of a bundle. Raises Refused (E_BUNDLE_INVALID) or OSError."""
        known = self._unpacking.get(bundle.digest)
        if known is None:
            known = asyncio.ensure_future(asyncio.to_thread(self._write, bundle, account))
            self._unpacking[bundle.digest] = known
        try:
            return await asyncio.shield(known)
        except Exception:
            if self._unpacking.get(bundle.digest) is known:
                del self._unpacking[bundle.digest]
            raise

    async def remove(self) -> None:
        """Also waits for what is being unpacked."""
        await asyncio.gather(*self._unpacking.values(), return_exceptions=True)
        await asyncio.to_thread(shutil.rmtree, self.root, ignore_errors=True)
        self._lock.close()

    async def remove_abandoned(self) -> None:
        """Folders of owners that are gone."""
        await asyncio.to_thread(_remove_abandoned, self.root.parent)

    def _write(self, bundle: CodeBundle, account: Account) -> Path:
        _check(bundle)
        folder = self.root / f"bundle-{hashlib.sha256(bundle.digest.encode()).hexdigest()[:32]}"
        shutil.rmtree(folder, ignore_errors=True)  # what a failed try left behind
        folder.mkdir(mode=0o700)
        for name, text in bundle.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        for path in (folder, *folder.rglob("*")):
            if account.gid is not None:
                shutil.chown(path, group=account.gid)
            path.chmod(0o750 if path.is_dir() else 0o640)
        return folder


def _locked(folder: Path) -> IO[bytes]:
    """The lock gets its name once it is held: under that name it is never seen free while its owner lives."""
    early = folder / f"{LOCK}-new"
    lock = early.open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    early.rename(folder / LOCK)
    return lock


def _remove_abandoned(among: Path) -> None:
    for folder in among.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another's folder, one without a lock yet, or one that is in use
            if folder.lstat().st_uid != os.geteuid() or folder.is_symlink():
                continue
            with (folder / LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def _check(bundle: CodeBundle) -> None:
    for name in bundle.files:
        path = PurePosixPath(name)
        if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name or "\\" in name:
            raise Refused("E_BUNDLE_INVALID", f"the bundle holds {name!r}, which is no path inside a folder")
    if bundle.entry not in bundle.files:
        raise Refused("E_BUNDLE_INVALID", f"the bundle has no file {bundle.entry!r}, which it names as its entry")
