"""Options that many commands share, so that they read the same everywhere; and how a file's option is read."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from schemas.errors import Refused

JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON document (streams: one a line); errors as problem+json on stderr.")
]
ProjectOption = Annotated[
    str | None, typer.Option("--project", metavar="PROJECT", help="Project; else A44_PROJECT, else the last login.")
]
ConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="Settings file; else A44_CONFIG, else ./a44.toml.")
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Run id, such as run_01J9XQ7M4K...", show_default=False)
]
KeyOption = Annotated[
    str | None,
    typer.Option("--idempotency-key", metavar="KEY", help="Stable key made from the data, never from the clock."),
]
TriggerOption = Annotated[
    str, typer.Option("--trigger", metavar="TRIGGER", help="Webhook trigger, such as trg_erp_sync.")
]
FileOption = Annotated[str, typer.Option("--file", metavar="FILE", help="File with the exact body; - reads stdin.")]


def read_body(option: str, file: str) -> bytes:
    """The exact bytes of a file, or of stdin for `-`."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as exc:
        raise Refused("E_INVALID_PARAMETER", f"{option} {file}: {exc.strerror}; expected a readable file") from exc
