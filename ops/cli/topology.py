"""`a44 topology`: the topics that the settings declare, and those that the broker has."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ops.cli.failures import CHECK_FAILED, OK
from ops.cli.options import ConfigOption, JsonOption
from ops.cli.output import Output, counted
from ops.cli.quick import command, new_group

if TYPE_CHECKING:
    from topology.topic_plan import Difference

group = new_group(help="Compare the broker's topics with the declared ones, and bring them together.")
_TITLES = ("TOPIC", "WHAT", "DECLARED", "REAL", "WAY")


@command(group, "plan", example="a44 topology plan --config a44.toml")
def plan(config: ConfigOption = None, as_json: JsonOption = False) -> int:
    """Show how the broker's topics differ from the declared ones.

    Reads only. Exit 1 when they differ.
    """
    import asyncio

    from ops.settings import load
    from ops.topics import topology_of

    topology = topology_of(load(Path(config) if config else None).settings)
    return _tell(asyncio.run(topology.plan()), Output(as_json))


@command(group, "apply", example="a44 topology apply --config a44.toml --wait 120")
def apply(
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long a topic may take to be read up.")
    ] = 60.0,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> int:
    """Make, set and grow topics as declared.

    A topic grows once ingest has read what the relay put into it, so that every key keeps its order. Nothing is
    deleted or shrunk; exit 1 when something differs still.
    """
    import asyncio

    from ops.settings import load
    from ops.topics import apply as bring
    from ops.topics import topology_of

    output = Output(as_json)
    settings = load(Path(config) if config else None).settings
    settings.require("postgres_dsn", "it tells what was read, before a topic grows")

    def told(one: "Difference") -> None:
        output.note(f"{one.topic}: {one.name or one.kind}, {one.real or 'nothing'} becomes {one.declared}")

    left = asyncio.run(bring(topology_of(settings), settings.postgres_dsn, wait, told))
    return _tell(left, output)


def _tell(found: "Sequence[Difference]", output: Output) -> int:
    if output.as_json:
        output.document(
            {
                "differences": [
                    {
                        "topic": one.topic,
                        "kind": one.kind,
                        "name": one.name,
                        "declared": one.declared,
                        "real": one.real,
                        "can_apply": one.can_apply,
                    }
                    for one in found
                ]
            }
        )
    else:
        output.line(counted(len(found), "difference"))
        rows = [(one.topic, one.name or one.kind, one.declared or "-", one.real or "-", one.way) for one in found]
        if rows:
            output.table(_TITLES, rows)
    return CHECK_FAILED if found else OK
