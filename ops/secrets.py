"""Where a project's secrets come from: the environment first, then the secrets file, read anew as it changes.

`A44_SECRET_<PROJECT>_<NAME>` (upper case, `-` as `_`) holds one secret; the file holds a table for each
project. Values live in this process's memory alone: nothing here logs or repeats one.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import structlog

from ops.settings.project_secrets import read_secrets
from schemas.errors import Refused

_log = structlog.get_logger(__name__)
_Stamp = tuple[int, int, int, int]  # time of change, size, inode, permissions


class SecretStore:
    """The port `Secrets`. A file that becomes unreadable keeps its last good content, with a warning."""

    def __init__(self, path: Path | None = None, environ: Mapping[str, str] | None = None) -> None:
        self._path = path
        self._environ = os.environ if environ is None else environ
        self._stamp: _Stamp | None = None
        self._found: Mapping[str, Mapping[str, str]] = {}
        if path is not None:
            self._stamp = _stamp_of(path)
            self._found = read_secrets(path)
            _warn_if_open(path, self._stamp)

    def __repr__(self) -> str:
        return f"SecretStore({str(self._path)!r})"

    def get(self, project: str, name: str) -> str:
        """The secret's value. Raises Refused E_SECRET_UNKNOWN, which says how to set it."""
        variable = variable_of(project, name)
        value = self._environ.get(variable)
        if value is None:
            self._refresh()
            value = self._found.get(project, {}).get(name)
        if not value:
            seen = "is not set" if value is None else "is empty"
            file = f"{self._path}" if self._path is not None else "the file that A44_SECRETS_FILE names"
            raise Refused(
                "E_SECRET_UNKNOWN",
                f"the secret {name} of project {project} {seen}; set the variable {variable}, "
                f'or write {name} = "..." below [{project}] in {file}',
            )
        return value

    def _refresh(self) -> None:
        if self._path is None:
            return
        stamp = _stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp  # also where reading fails: one warning for each change
        try:
            self._found = read_secrets(self._path)
        except Refused as exc:
            _log.warning("secrets_file_kept", file=str(self._path), reason=exc.message)
            return
        _warn_if_open(self._path, stamp)
        _log.info("secrets_file_read", file=str(self._path), projects=len(self._found))


def variable_of(project: str, name: str) -> str:
    """The environment variable that holds a secret."""
    return f"A44_SECRET_{project}_{name}".upper().replace("-", "_")


def _stamp_of(path: Path) -> _Stamp | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino, stat.S_IMODE(seen.st_mode)


def _warn_if_open(path: Path, stamp: _Stamp | None) -> None:
    mode = stamp[3] if stamp is not None else 0
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        _log.warning("secrets_file_open", file=str(path), mode=f"{mode:04o}", advice=f"chmod 600 {path}")
