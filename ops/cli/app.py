"""The command `a44`: its groups, and the one place where errors become words and an exit code."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
import typer.main
from typer.core import TyperGroup

from ops.cli import (
    auth,
    completion,
    configuration,
    dead_letters,
    doctor,
    event_types,
    events,
    inspection,
    listening,
    projects,
    publishing,
    resending,
    running,
    scaffolding,
    service,
    tailing,
    topology,
    triggers,
    webhooks,
)
from ops.cli.access import choose_profile
from ops.cli.failures import CLOSED_PIPE, DEFECT, EXIT_CODES, INTERRUPTED, OK, USAGE, exit_code, report, report_defect
from ops.cli.quick import command, new_group
from schemas.errors import AutomationError, Refused

_WIDEST_HELP = 110
_EPILOG = "\b\n" + EXIT_CODES

app = new_group(
    name="a44",
    epilog=_EPILOG,
    help="Durable workflows: publish them, run them, see where each run is.\n\n"
    "Data goes to stdout, messages to stderr; every command but dev and up takes --json.",
)
automation = new_group(help="Publish workflows, start runs, inspect them, send events and webhooks.", epilog=_EPILOG)
listening.register(webhooks.group)
automation.add_typer(webhooks.group, name="webhook")
resending.register(events.group)
event_types.register(events.group)
tailing.register(events.group)
automation.add_typer(events.group, name="events")
automation.add_typer(triggers.group, name="trigger")
automation.add_typer(dead_letters.group, name="dlq")
automation.add_typer(projects.group, name="project")
publishing.register(automation)
running.register(automation)
inspection.register(automation)
app.add_typer(automation, name="automation")
app.add_typer(auth.group, name="auth")
app.add_typer(topology.group, name="topology")
command(app, "init", example="a44 init my-flows")(scaffolding.init)
command(app, "dev", example="a44 dev --persist .a44/data --port 8044 flows/")(service.dev)
command(app, "up", example=service.UP_EXAMPLE)(service.up)
command(app, "migrate", example="A44_POSTGRES_DSN=postgresql://a44@db.example/a44 a44 migrate")(service.migrate)
command(app, "doctor", example="A44_POSTGRES_DSN=... A44_KAFKA_BOOTSTRAP=127.0.0.1:9092 a44 doctor")(doctor.doctor)
command(app, "completion", example='eval "$(a44 completion bash)"')(completion.completion)
command(app, "config", example="a44 config --config a44.toml")(configuration.config)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        sys.stdout.write(f"a44 {version('anthares44-automation-service')}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[  # noqa: ARG001  its callback has said it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="PROFILE",
            help="Login to use, here or after any command; else A44_PROFILE, else auth use.",
        ),
    ] = None,
) -> None:
    """The options before any command."""
    choose_profile(profile)


def main() -> None:
    """The entry point of the installed command."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us: there is nobody to tell anything
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  for as long as we live
    try:
        code = run(sys.argv[1:]) if completion.VARIABLE not in os.environ else _complete(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader left, as `head` does: say nothing, also not at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = CLOSED_PIPE
    sys.exit(code)


def _complete(words: Sequence[str]) -> int:
    """What the script of a shell asks."""
    root_command = typer.main.get_command(app)
    return completion.answer(root_command, words) if isinstance(root_command, TyperGroup) else OK


def run(arguments: Sequence[str]) -> int:
    """Run one command line; answers its exit code. Only a closed pipe is raised."""
    as_json = "--json" in arguments
    root_command = typer.main.get_command(app)
    choose_profile(None)
    try:
        with root_command.make_context("a44", _profile_first(arguments), max_content_width=_WIDEST_HELP) as context:
            return int(root_command.invoke(context) or OK)
    except AutomationError as error:
        report(error, as_json=as_json)
        return exit_code(error)
    except typer.TyperException as error:
        _report_usage(error, as_json=as_json)
        return USAGE
    except typer.Exit as error:
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001  the last place that can turn a defect into a report
        report_defect(error, as_json=as_json)
        return DEFECT


def _profile_first(arguments: Sequence[str]) -> list[str]:
    """`--profile` belongs to every command: where it stands after one, it is read as if it stood before."""
    words = list(arguments)
    found: list[str] = []
    end = words.index("--") if "--" in words else len(words)
    for at in range(end - 1, -1, -1):
        if words[at] == "--profile" and at + 1 < end:
            found[:0] = [words.pop(at), words.pop(at)]
            end -= 2
        elif words[at].startswith("--profile="):
            found.insert(0, words.pop(at))
            end -= 1
    return [*found, *words]


def _report_usage(error: typer.TyperException, *, as_json: bool) -> None:
    """Wrong arguments: what was wrong, the usage line, where the help is."""
    context = getattr(error, "ctx", None)
    if not as_json and error.message.startswith("Usage:"):  # nothing was asked: the help itself
        sys.stderr.write(error.message + "\n")
        return
    report(Refused("E_INVALID_PARAMETER", error.format_message()), as_json=as_json)
    if context is not None and not as_json:
        sys.stderr.write(f"  {context.get_usage()}\n  {context.command_path} --help says more\n")
