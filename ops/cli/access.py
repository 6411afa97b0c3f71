"""Which service, project and token a command uses: options over the environment over the credentials file.

`--profile` is an option: what its login holds is used before the environment. `A44_PROFILE` only says which login of
the file is meant.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from ops.cli.credentials import Login, credentials_file, read_credentials
from ops.client import Client
from schemas.errors import Refused

DEFAULT_URL = "http://127.0.0.1:8044"
_TOKEN_VARIABLE = "A44_TOKEN"  # noqa: S105  the name of a variable, not a token
_NAMED = ("option", "A44_PROJECT")
_PROFILE_OPTION = "--profile"
_option: ContextVar[str | None] = ContextVar("profile", default=None)


@dataclass(frozen=True, slots=True)
class Access:
    """`sources` tells where each of url, token and project came from; `profile` is None where no login was used."""

    url: str
    token: str = field(repr=False)
    project: str | None
    profile: str | None
    sources: dict[str, str]


def choose_profile(name: str | None) -> None:
    """What `--profile` names, for the rest of this command; None where it was not given."""
    _option.set(name)


def chosen_profile() -> tuple[str | None, str]:
    """The profile that was named, and by what."""
    return _first((_option.get(), _PROFILE_OPTION), (os.environ.get("A44_PROFILE"), "A44_PROFILE"))


def find_access(project: str | None = None) -> Access:
    """What is in force; an empty token where there is none. Raises `E_CREDENTIALS` for a profile that does not fit."""
    environment = {name: os.environ.get(f"A44_{name.upper()}") or None for name in ("url", "token", "project")}
    profile, login = _login(project, environment)
    file = str(credentials_file())

    def choose(name: str) -> tuple[str | None, str]:
        in_environment = (environment[name], f"A44_{name.upper()}")
        in_file = (getattr(login, name, None), file)
        return _first(*((in_file, in_environment) if _option.get() else (in_environment, in_file)))

    url, url_source = choose("url")
    token, token_source = choose("token")
    named, project_source = (project, "option") if project else choose("project")
    sources = {"url": url_source if url else "default", "token": token_source, "project": project_source}
    return Access(url or DEFAULT_URL, token or "", named, profile if login else None, sources)


def _login(project: str | None, environment: Mapping[str, str | None]) -> tuple[str | None, Login | None]:
    """The profile and its login: the one that was named, else the one that opens the project, else the selected one."""
    named, by = chosen_profile()
    if by != _PROFILE_OPTION and environment["token"] and environment["url"]:
        return None, None  # the environment says it all: the file is not even read
    stored = read_credentials()
    wanted = project or environment["project"]
    profile = named or (stored.profile_of(wanted) if wanted else stored.default)
    login = stored.login(named) if named else stored.profiles.get(profile or "")
    if named and login and project and login.project != project:
        raise Refused(
            "E_CREDENTIALS",
            f"the profile {named!r} ({by}) opens {login.project!r}, not {project!r}; name one of the two",
        )
    return profile, login


@contextmanager
def open_client(project: str | None = None, timeout: float = 30.0) -> Iterator[Client]:
    """A client with a token; `E_CREDENTIALS` says how to get one."""
    access = find_access(project)
    if not access.token:
        whose = f"the project {access.project!r}" if access.project else "any project"
        raise Refused(
            "E_CREDENTIALS",
            f"there is no token for {whose}: use a44 auth login --project PROJECT, or set A44_TOKEN "
            "(an operator makes tokens with a44 auth token create)",
        )
    client = Client(access.url, access.token, timeout)
    try:
        if project and access.sources["token"] == _TOKEN_VARIABLE and project != os.environ.get("A44_PROJECT"):
            _check_owner(client, project)
        yield client
    finally:
        client.close()


def _check_owner(client: Client, project: str) -> None:
    """The token alone says whose runs are listed or cancelled: another project's than was named must not be."""
    owner = str(client.whoami()["project_id"])
    if owner != project:
        raise Refused(
            "E_CREDENTIALS",
            f"A44_TOKEN belongs to {owner!r}, not to {project!r}: use the token of {project!r}, or unset A44_TOKEN "
            "to use what a44 auth login has stored",
        )


def project_in_use(client: Client, project: str | None) -> str:
    """The named project; else the one that the token belongs to, which the service knows best."""
    access = find_access(project)
    token_has_own_project = access.sources["token"] == _TOKEN_VARIABLE and access.sources["project"] not in _NAMED
    if access.project and not token_has_own_project:
        return access.project
    return str(client.whoami()["project_id"])


def _first(*candidates: tuple[str | None, str]) -> tuple[str | None, str]:
    for value, source in candidates:
        if value:
            return value, source
    return None, "not set"
