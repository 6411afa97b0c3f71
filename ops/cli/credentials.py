"""Logins by profile in `~/.a44/credentials`: readable by their owner alone, replaced as a whole.

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
    """How one project of one service is reached."""

    url: str
    token: str = field(repr=False)
    project: str


@dataclass(frozen=True, slots=True)
class Credentials:
    """All logins by profile, and the profile that is used where none is named. A login without a profile of its own
    is kept under its project's name.
    """

    default: str | None = None
    profiles: Mapping[str, Login] = field(default_factory=dict)

    def with_login(self, profile: str, login: Login) -> "Credentials":
        """The login added, its profile selected."""
        return Credentials(profile, {**self.profiles, profile: login})

    def without(self, profile: str) -> "Credentials":
        left = {name: login for name, login in self.profiles.items() if name != profile}
        return Credentials(self.default if self.default in left else None, left)

    def selecting(self, profile: str) -> "Credentials":
        self.login(profile)
        return replace(self, default=profile)

    def login(self, profile: str) -> Login:
        """Raises `E_CREDENTIALS` for a profile that nobody logged in to."""
        found = self.profiles.get(profile)
        if found is None:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise Refused(
                "E_CREDENTIALS",
                f"there is no login for {profile!r}, only for: {known}; "
                f"use a44 --profile {profile} auth login --project PROJECT",
            )
        return found

    def profile_of(self, project: str) -> str | None:
        """The profile that opens a project. Raises `E_CREDENTIALS` where several do and none is selected."""
        opening = [name for name, login in self.profiles.items() if login.project == project]
        if self.default in opening:
            return self.default
        if project in opening or len(opening) < 2:  # noqa: PLR2004  one leaves no choice
            return project if project in opening else next(iter(opening), None)
        raise Refused(
            "E_CREDENTIALS",
            f"several profiles open {project!r}: {', '.join(sorted(opening))}; name one with --profile",
        )


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
    """Files of before there were profiles have `projects` and `default_project`."""
    profiles = document["profiles"] if "profiles" in document else document["projects"]
    if not isinstance(profiles, dict):
        raise TypeError("profiles")
    default = document.get("default_profile", document.get("default_project"))
    logins = {
        str(name): Login(str(login["url"]), str(login["token"]), str(login.get("project", name)))
        for name, login in profiles.items()
    }
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
        "default_profile": credentials.default,
        "profiles": {
            name: {"project": login.project, "url": login.url, "token": login.token}
            for name, login in credentials.profiles.items()
        },
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
