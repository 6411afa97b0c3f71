"""`a44 up`, `migrate` and `dev`: the service itself, in this process."""

from pathlib import Path
from typing import Annotated

import typer

from ops.cli.failures import OK
from ops.cli.options import ConfigOption, JsonOption
from ops.cli.output import Output

UP_EXAMPLE = "A44_POSTGRES_DSN=... A44_KAFKA_BOOTSTRAP=127.0.0.1:9092 a44 up --roles relay,ingest"
_ALL_ROLES = "gateway,relay,ingest,scheduler,executor"


def up(
    roles: Annotated[
        str, typer.Option("--roles", metavar="ROLE,...", help="Which of the roles to run in this process.")
    ] = _ALL_ROLES,
    config: ConfigOption = None,
) -> int:
    """Run roles of the service in this process.

    Any set of them, against given Postgres and Kafka, until SIGTERM or Ctrl-C.
    """
    from ops.settings import load, parse_roles

    wanted = parse_roles(roles)
    loaded = load(Path(config) if config else None)
    loaded.settings.require_for(wanted)
    output = Output(as_json=False)
    for warning in loaded.warnings:
        output.note(f"warning: {warning}")

    import uvloop

    from ops.composition import up as run_roles

    uvloop.run(run_roles(loaded.settings, wanted))
    return OK


def migrate(config: ConfigOption = None, as_json: JsonOption = False) -> int:
    """Bring the database to this version's schema.

    Forward only; safe to repeat.
    """
    import asyncio

    from ops.settings import load
    from processors.adapters.postgres.migrations import migrate as apply_missing

    output = Output(as_json)
    settings = load(Path(config) if config else None).settings
    settings.require("postgres_dsn", "there is no database to migrate")
    applied = asyncio.run(apply_missing(settings.postgres_dsn, lambda name: output.note(f"applying {name}")))
    if as_json:
        output.document({"applied": applied})
    elif applied:
        for name in applied:
            output.line(name)
    else:
        output.note("the schema is up to date")
    return OK


def dev(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH...]", help="Workflow files and folders; else this folder.")
    ] = None,
    persist: Annotated[
        str | None, typer.Option("--persist", metavar="DIR", help="Keep the data here between starts.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The gateway's port; 0 takes a free one.")] = 0,
    postgres_port: Annotated[
        int, typer.Option("--postgres-port", min=0, max=65535, help="Postgres' port; 0 takes a free one.")
    ] = 0,
    kafka_port: Annotated[
        int, typer.Option("--kafka-port", min=0, max=65535, help="The broker's port; 0 takes a free one.")
    ] = 0,
) -> int:
    """Run the whole stack on this machine.

    Workflow files are published as they are saved; Ctrl-C stops everything.
    """
    from ops.dev import dev as run_stack
    from ops.settings import DevOptions

    options = DevOptions(
        paths=tuple(Path(path) for path in paths or ["."]),
        persist=Path(persist) if persist else None,
        port=port,
        postgres_port=postgres_port,
        kafka_port=kafka_port,
    )
    run_stack(options)
    return OK
