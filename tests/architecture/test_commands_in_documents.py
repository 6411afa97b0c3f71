"""Commands in the pages exist with the options that they are shown with, and every command is told."""

from collections.abc import Iterator

import pytest
import typer.main
from typer.core import TyperGroup

from ops.cli.app import app
from tests.support.documents import Page, commands, page, pages

ROOT_COMMAND = typer.main.get_command(app)


def leaves(group: TyperGroup, path: str) -> Iterator[tuple[str, bool]]:
    """Every command that does something, by its whole name, and whether it has `--json`."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from leaves(command, f"{path} {name}")
        else:
            yield f"{path} {name}", any("--json" in param.opts for param in command.params)


def fault_of(words: list[str]) -> str | None:
    """What is wrong with a command line; None for one that could be given."""
    command = ROOT_COMMAND
    rest = list(words)
    while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
        found = command.commands.get(rest[0])
        if found is None:
            return f"there is no command {rest[0]!r} in {' '.join(words)!r}"
        command, rest = found, rest[1:]
    own = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    options = own | {"--help", "--profile"}  # which any command takes, wherever it stands
    unknown = [word for word in rest if word.startswith("--") and word.partition("=")[0] not in options]
    return f"{' '.join(words)!r} has no option {unknown[0]}" if unknown else None


def test_every_command_stands_in_the_page_of_the_command_line() -> None:
    assert isinstance(ROOT_COMMAND, TyperGroup)
    told = {row[0].strip("`"): row[2] for row in page("docs/cli.md").rows("The commands")}
    found = dict(leaves(ROOT_COMMAND, "a44"))
    assert set(told) == set(found)
    wrong = {name for name, has_json in found.items() if has_json == told[name].startswith("no `--json`")}
    assert not wrong


@pytest.mark.parametrize("read", [found for found in pages() if "a44 " in found.text], ids=lambda found: found.name)
def test_commands_in_a_page_exist_with_their_options(read: Page) -> None:
    faults = [fault for words in commands(read) if (fault := fault_of(words)) is not None]
    assert not faults


def test_a_command_that_does_not_exist_is_found() -> None:
    assert fault_of(["automation", "runs", "--state", "failed"]) is None
    assert fault_of(["automation", "replay", "run_x"]) is not None
    assert fault_of(["automation", "run", "wf_x", "--idempotency-kay", "k"]) is not None
