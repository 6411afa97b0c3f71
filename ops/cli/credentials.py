"""Tokens by project in `~/.a44/credentials`: readable by their owner alone, replaced as a whole.

A file that others can read is refused, not used. Two logins at once both survive: the change is made
under a lock on the folder.
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from schemas.errors import Refused

_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Login:
    """How one project is reached."""

    url: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Credentials:
    """All logins and the project that is used where none is named."""

    default_project: str | None = None
    projects: Mapping[str, Login] = field(default_factory=dict)

    def with_login(self, project: str, login: Login) -> "Credentials":
        """The login added, its project selected."""
        return Credentials(project, {**self.projects, project: login})

    def without(self, project: str) -> "Credentials":
        left = {name: login for name, login in self.projects.items() if name != project}
        default = self.default_project if self.default_project in left else None
        return Credentials(default, left)

    def selecting(self, project: str) -> "Credentials":
        if project not in self.projects:
            known = ", ".join(sorted(self.projects)) or "none"
            raise Refused("E_CREDENTIALS", f"there is no login for {project!r}, only for: {known}; use a44 auth login")
        return replace(self, default_project=project)


def home() -> Path:
    """The folder with the credentials: A44_HOME or ~/.a44."""
    return Path(os.environ.get("A44_HOME") or Path.home() / ".a44")


def credentials_file() -> Path:
    return home() / "credentials"


def read_credentials() -> Credentials:
    """What is stored; nothing where there is no file. Raises `E_CREDENTIALS` for one that others may read."""
    path = credentials_file()
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & _OTHERS:
                raise Refused(
                    "E_CREDENTIALS",
                    f"{path} can be read or changed by others (mode {mode & 0o777:04o}, expected 0600): "
                    f"run chmod 600 {path}, and make new tokens if others may have seen these",
                )
            return _parse(json.load(file))
    except FileNotFoundError:
        return Credentials()
    except OSError as exc:
        raise Refused("E_CREDENTIALS", f"{path} cannot be read: {exc.strerror}") from exc
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise Refused(
            "E_CREDENTIALS", f"{path} is not a credentials file; move it away and use a44 auth login again"
        ) from exc


def change_credentials(change: Callable[[Credentials], Credentials]) -> Credentials:
    """Read, change and store in one go; answers what is stored now."""
    path = credentials_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path.parent):
            changed = change(read_credentials())
            _replace(path, changed)
    except OSError as exc:
        raise Refused("E_CREDENTIALS", f"{path} cannot be written: {exc.strerror}") from exc
    return changed


def _parse(document: dict[str, object]) -> Credentials:
    projects = document["projects"]
    if not isinstance(projects, dict):
        raise TypeError("projects")
    default = document.get("default_project")
    logins = {str(name): Login(str(login["url"]), str(login["token"])) for name, login in projects.items()}
    return Credentials(default if isinstance(default, str) else None, logins)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace(path: Path, credentials: Credentials) -> None:
    document = {
        "default_project": credentials.default_project,
        "projects": {name: {"url": login.url, "token": login.token} for name, login in credentials.projects.items()},
    }
    handle, temporary = tempfile.mkstemp(prefix=".credentials-", dir=path.parent)  # mkstemp makes it 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(document, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
