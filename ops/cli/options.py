"""Options that many commands share, so that they read the same everywhere."""

from typing import Annotated

import typer

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
