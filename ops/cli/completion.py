"""`a44 completion`: scripts for shells, and what they ask on every Tab.

A script hands over the words up to the cursor, with `_A44_COMPLETE` set, and gets a line for each candidate. Ids come
from the service that the typed command would ask. It has a second in all; where it is away, or refuses, there are none:
a Tab never says anything else.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from ops.cli.access import choose_profile, open_client
from ops.cli.credentials import read_credentials
from ops.cli.failures import OK
from ops.cli.options import JsonOption
from ops.cli.output import Output, printable
from ops.client import Client

VARIABLE = "_A44_COMPLETE"

_SECONDS = 1.0
_NEWEST = 50

_BASH = """\
_a44_completion() {
    local IFS=$'\\n'
    COMPREPLY=($(_A44_COMPLETE=bash "${COMP_WORDS[0]}" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _a44_completion a44
"""
_ZSH = """\
#compdef a44
_a44_completion() {
    local -a found
    found=("${(@f)$(_A44_COMPLETE=zsh "${words[1]}" "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then
        _describe 'a44' found
    else
        _files
    fi
}
compdef _a44_completion a44
"""
_FISH = """\
function __a44_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -e words[1]
    set -l found (_A44_COMPLETE=fish a44 $words "$current" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete --command a44 --no-files --arguments '(__a44_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_REMARK = {"zsh": ":", "fish": "\t"}  # what stands before it

Candidate = tuple[str, str]


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help=", ".join(_SCRIPTS))], as_json: JsonOption = False
) -> int:
    """Print a script that completes commands, options and live ids.

    Put it where your shell reads it when it starts.
    """
    script = _SCRIPTS.get(shell)
    if script is None:
        raise typer.BadParameter(f"{shell!r} is none of {', '.join(_SCRIPTS)}", param_hint="SHELL")
    output = Output(as_json)
    if as_json:
        output.document({"shell": shell, "script": script})
    else:
        sys.stdout.write(script)
    return OK


def answer(root: TyperGroup, words: Sequence[str]) -> int:
    """What a script asks: candidates for the last word, in the form of its shell."""
    shell = os.environ.get(VARIABLE, "")
    for value, told in candidates(root, words):
        name = value.replace(":", "\\:") if shell == "zsh" else value
        remark = f"{_REMARK[shell]}{told}" if told and shell in _REMARK else ""
        sys.stdout.write(f"{name}{remark}\n")
    return OK


def candidates(root: TyperGroup, words: Sequence[str]) -> list[Candidate]:
    """Each with a remark, which may be empty. The last word is the one that is being typed."""
    typed = [word for word in words if word != "="] or [""]  # bash takes --option=value apart
    if words[-1:] == ["="]:
        typed.append("")
    *before, current = typed
    name, is_joined, value = current.partition("=")
    if is_joined and name.startswith("--"):
        before, current = [*before, name], value
    line = _read(root, before)
    found = [one for one in _offered(line, current) if one[0].startswith(current)]
    return [(f"{name}={one}", told) for one, told in found] if is_joined and name.startswith("--") else found


@dataclass
class _Line:
    """A command line as far as it is typed: where it stands, and what was given by then."""

    command: Any
    waiting: TyperOption | None = None
    arguments: int = 0
    given: dict[str, str] = field(default_factory=dict)


def _read(root: TyperGroup, words: Sequence[str]) -> _Line:
    line = _Line(root)
    everywhere = {name: param for param in root.params for name in param.opts}  # --profile may stand after any command
    for word in words:
        if line.waiting is not None:
            line.given[line.waiting.opts[0]] = word
            line.waiting = None
        elif word.startswith("-"):
            own = {name: param for param in line.command.params for name in param.opts}
            option = own.get(word) or everywhere.get(word)
            line.waiting = option if isinstance(option, TyperOption) and not option.is_flag else None
        elif isinstance(line.command, TyperGroup) and word in line.command.commands:
            line.command = line.command.commands[word]
        else:
            line.arguments += 1
    return line


def _offered(line: _Line, current: str) -> Iterable[Candidate]:
    if line.waiting is not None:
        return _values(line.waiting.metavar, line)
    if current.startswith("-"):
        return _options(line)
    if isinstance(line.command, TyperGroup):
        return [(name, command.short_help or command.help or "") for name, command in line.command.commands.items()]
    places = [param for param in line.command.params if isinstance(param, TyperArgument)]
    if line.arguments < len(places):
        return _values(places[line.arguments].metavar, line)
    return _values(places[-1].metavar, line) if places and places[-1].nargs == -1 else []


def _options(line: _Line) -> Iterator[Candidate]:
    for param in line.command.params:
        if isinstance(param, TyperOption) and not param.hidden:
            yield from ((name, param.help or "") for name in (*param.opts, *param.secondary_opts))
    yield "--help", "Show what it does, with an example."
    yield "--profile", "Login to use."


def _values(metavar: str | None, line: _Line) -> list[Candidate]:
    """By the name that the help gives to a value, which is the same wherever it is taken."""
    if metavar in _HERE:
        return [*_silently(_HERE[metavar])]
    if metavar not in _LIVE:
        return []
    found: list[Candidate] = []
    ask = _LIVE[metavar]

    def look() -> None:
        choose_profile(line.given.get("--profile"))
        with open_client(line.given.get("--project"), _SECONDS) as client:
            found.extend(ask(client))

    # Not even the resolver of names may hold a Tab up: whoever comes late is left behind.
    looking = threading.Thread(target=lambda: _silently(look), daemon=True)
    looking.start()
    looking.join(_SECONDS)
    return [(printable(value), printable(told)) for value, told in [*found]]


def _silently(ask: Callable[[], Any]) -> Any:
    try:
        return ask() or []
    except Exception:  # noqa: BLE001  a Tab is no place for an error: the command itself will tell it
        return []


def _runs(client: Client) -> Iterator[Candidate]:
    for row in client.runs(limit=_NEWEST, filters={})["runs"]:
        yield str(row["run_id"]), f"{row.get('workflow_id')} {row.get('state')}"


def _workflows(client: Client) -> Iterator[Candidate]:
    for row in client.workflows():
        yield str(row["workflow_id"]), f"version {row.get('version')}"


def _triggers(client: Client) -> Iterator[Candidate]:
    for row in client.triggers():
        yield str(row["trigger_id"]), f"{row.get('type')} {row.get('workflow_id')}"


def _event_types(client: Client) -> Iterator[Candidate]:
    for row in client.event_types():
        yield str(row["event_type"]), f"version {row.get('version')}"


def _profiles() -> list[Candidate]:
    return [(name, login.project) for name, login in read_credentials().profiles.items()]


def _projects() -> list[Candidate]:
    return [(name, "") for name in sorted({login.project for login in read_credentials().profiles.values()})]


def _states() -> list[Candidate]:
    from processors.engine.moves import RunStatus

    return [(state.value, "") for state in RunStatus]


_HERE: Mapping[str | None, Callable[[], list[Candidate]]] = {
    "PROFILE": _profiles,
    "PROJECT": _projects,
    "STATE": _states,
    "SHELL": lambda: [(shell, "") for shell in _SCRIPTS],
}
_LIVE: Mapping[str | None, Callable[[Client], Iterator[Candidate]]] = {
    "RUN": _runs,
    "WORKFLOW": _workflows,
    "TRIGGER": _triggers,
    "TYPE": _event_types,
}
