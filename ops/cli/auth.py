"""`a44 auth`: log in to projects, see who one is, make tokens."""

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from ops.cli.access import DEFAULT_URL, chosen_profile, find_access, open_client
from ops.cli.credentials import Credentials, Login, change_credentials, credentials_file, read_credentials
from ops.cli.failures import OK
from ops.cli.options import ConfigOption, JsonOption, ProjectOption
from ops.cli.output import Output, printable
from ops.cli.quick import command, new_group
from ops.client import Client, service_address
from schemas.errors import Refused

_SPAN = re.compile(r"(\d{1,5})([hd])")
_SCOPES = ("automation:read", "automation:write", "automation:dead-letters", "automation:operator")

group = new_group(help="Log in to projects, see who you are, make tokens.")
token_group = new_group(help="Tokens of projects (for operators: needs the database).")
group.add_typer(token_group, name="token")


@command(
    group,
    "login",
    example="a44 auth login --project pj_checkout_prod --url http://127.0.0.1:8044 < token.txt",
)
def login(
    project: Annotated[str, typer.Option("--project", metavar="PROJECT", help="Project that the token belongs to.")],
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help=f"The service; else A44_URL, else {DEFAULT_URL}.")
    ] = None,
    token: Annotated[
        str | None, typer.Option("--token", metavar="TOKEN", help="The token; better piped in, or asked for.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Ask the service whether the token fits.")
    ] = True,
    as_json: JsonOption = False,
) -> int:
    """Store a project's token and select it.

    Tokens are kept in ~/.a44/credentials (0600), each under a profile: the one that --profile names, else the project.
    The token comes from --token, from a pipe, or from a question on a terminal.
    """
    output = Output(as_json)
    profile = chosen_profile()[0] or project
    before = read_credentials().profiles.get(profile)
    address = service_address(url or os.environ.get("A44_URL") or (before.url if before else DEFAULT_URL))
    secret = token or _read_token()
    _warn_clear_text(address, output)
    if verify:
        _check(Client(address, secret), project)
    change_credentials(lambda stored: stored.with_login(profile, Login(address, secret, project)))
    if as_json:
        output.document({"project": project, "profile": profile, "url": address, "file": str(credentials_file())})
    else:
        under = "" if profile == project else f" as {profile}"
        output.note(f"logged in to {project} at {address}{under}; the token is in {credentials_file()}")
    return OK


@command(group, "use", example="a44 auth use pj_checkout_prod")
def use(
    profile: Annotated[str, typer.Argument(metavar="PROFILE", help="One of those you are logged in to.")],
    as_json: JsonOption = False,
) -> int:
    """Select the profile that commands use where none is named.

    A login without a profile of its own has its project's name.
    """
    output = Output(as_json)
    login = change_credentials(lambda stored: stored.selecting(profile)).login(profile)
    if as_json:
        output.document({"profile": profile, "project": login.project})
    else:
        output.note(f"{profile} is selected")
    return OK


@command(group, "logout", example="a44 auth logout --project pj_checkout_prod")
def logout(
    project: Annotated[
        str | None, typer.Option("--project", metavar="PROJECT", help="Project to forget; or name a --profile.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Remove a token from this machine.

    The token itself stays valid.
    """
    output = Output(as_json)
    gone = chosen_profile()[0]
    if gone is None and project is None:
        raise Refused(
            "E_INVALID_PARAMETER", "nothing was named; expected --project or --profile, to say which to forget"
        )

    def forget(stored: Credentials) -> Credentials:
        nonlocal gone
        gone = gone or stored.profile_of(project or "") or project or ""
        return stored.without(gone)

    change_credentials(forget)
    if as_json:
        output.document({"project": project, "profile": gone})
    else:
        output.note(f"the token of {gone} is gone from {credentials_file()}")
    return OK


@command(group, "whoami", example="a44 auth whoami")
def whoami(project: ProjectOption = None, as_json: JsonOption = False) -> int:
    """Show the project, token and scopes that commands act with."""
    output = Output(as_json)
    access = find_access(project)
    with open_client(project) as client:
        answer = client.whoami()
    if as_json:
        output.document({**answer, "url": access.url, "profile": access.profile, "sources": access.sources})
        return OK
    output.line(f"project  {printable(str(answer.get('project_id')))}")
    output.line(f"token    {printable(str(answer.get('token_id')))}  (from {access.sources['token']})")
    output.line(f"scopes   {printable(', '.join(answer.get('scopes', [])))}")
    if access.profile is not None:
        output.line(f"profile  {printable(access.profile)}")
    output.line(f"service  {access.url}  (from {access.sources['url']})")
    return OK


@command(
    token_group,
    "create",
    example="a44 auth token create --project pj_shop --name ci --scope automation:write --allow-cidr 203.0.113.0/24",
)
def create_token(
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What the token is for.")],
    scope: Annotated[
        list[str], typer.Option("--scope", metavar="SCOPE", help=f"{', '.join(_SCOPES)}; may be repeated.")
    ],
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="SPAN", help="Such as 12h or 30d; without it, never.")
    ] = None,
    allow_cidr: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-cidr", metavar="NETWORK", help="Only from there, such as 203.0.113.0/24; may be repeated."
        ),
    ] = None,
    project: ProjectOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> int:
    """Make a token and print it once, on stdout.

    Talks to the database directly (A44_POSTGRES_DSN).
    """
    import asyncio

    from ops.settings import load

    output = Output(as_json)
    settings = load(Path(config) if config else None).settings
    settings.require("postgres_dsn", "tokens are kept in Postgres")
    seconds = _seconds(expires)
    project = project or find_access().project
    if project is None:
        raise Refused("E_INVALID_PARAMETER", "no project was named; expected --project, A44_PROJECT or a login")
    token = asyncio.run(_store_token(settings.postgres_dsn, project, name, scope, seconds, allow_cidr or []))
    if as_json:
        document = {"project": project, "name": name, "scopes": scope, "networks": allow_cidr or [], "token": token}
        output.document({**document, "expires_in_seconds": seconds})
    else:
        output.note(f"a token for {project}, shown this once:")
        output.line(token)
    return OK


async def _store_token(
    dsn: str, project: str, name: str, scopes: list[str], seconds: float | None, networks: list[str]
) -> str:
    from processors.adapters.postgres.connections import open_pool
    from processors.adapters.postgres.tokens import PostgresTokens

    async with open_pool(dsn, "cli", 1) as pool:
        return await PostgresTokens(pool).create_token(project, name, scopes, expires_in=seconds, networks=networks)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    found = _SPAN.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise typer.BadParameter(f"{text!r} is not a span such as 12h or 30d", param_hint="--expires")
    return int(found[1]) * (86_400.0 if found[2] == "d" else 3_600.0)


def _read_token() -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        token = getpass("Token: ", stream=sys.stderr)
    else:
        token = sys.stdin.readline()
    if not token.strip():
        raise Refused("E_CREDENTIALS", "no token was given: pipe it in, or use --token")
    return token.strip()


def _check(client: Client, project: str) -> None:
    try:
        owner = client.whoami().get("project_id")
    finally:
        client.close()
    if owner != project:
        raise Refused("E_CREDENTIALS", f"the token belongs to {owner!r}, not to {project!r}: nothing was stored")


def _warn_clear_text(address: str, output: Output) -> None:
    host = address.removeprefix("http://").split("/")[0]
    loopback = host.startswith(("127.", "localhost", "[::1]"))
    if address.startswith("http://") and not loopback:
        output.note(f"warning: {address} is not HTTPS: the token travels in clear text")
