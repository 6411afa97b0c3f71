"""Which service, project and token a command uses: options over the environment over the credentials file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ops.cli.credentials import Credentials, credentials_file, read_credentials
from ops.client import Client
from schemas.errors import Refused

DEFAULT_URL = "http://127.0.0.1:8044"
_TOKEN_VARIABLE = "A44_TOKEN"  # noqa: S105  the name of a variable, not a token
_NAMED = ("option", "A44_PROJECT")


@dataclass(frozen=True, slots=True)
class Access:
    """`sources` tells where each of url, token and project came from."""

    url: str
    token: str = field(repr=False)
    project: str | None
    sources: dict[str, str]


def find_access(project: str | None = None) -> Access:
    """What is in force; an empty token where there is none."""
    environment = {name: os.environ.get(f"A44_{name.upper()}") or None for name in ("url", "token", "project")}
    stored = Credentials() if environment["token"] and environment["url"] else read_credentials()
    file = str(credentials_file())
    name, name_source = _first(
        (project, "option"), (environment["project"], "A44_PROJECT"), (stored.default_project, file)
    )
    login = stored.projects.get(name) if name else None
    url, url_source = _first(
        (environment["url"], "A44_URL"), (login.url if login else None, file), (DEFAULT_URL, "default")
    )
    token, token_source = _first((environment["token"], _TOKEN_VARIABLE), (login.token if login else None, file))
    sources = {"url": url_source, "token": token_source, "project": name_source}
    return Access(url or DEFAULT_URL, token or "", name, sources)


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
        yield client
    finally:
        client.close()


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
