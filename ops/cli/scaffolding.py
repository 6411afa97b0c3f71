"""`a44 init`: a folder to start from. Nothing that exists is overwritten."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from ops.cli.failures import OK
from ops.cli.options import JsonOption
from ops.cli.output import Output
from schemas.errors import Refused

_SUFFIX = ".template"


def init(
    folder: Annotated[str, typer.Argument(metavar="[DIR]", help="Where to put the files.")] = ".",
    as_json: JsonOption = False,
) -> int:
    """Write a small project to start from.

    A YAML and a Python workflow, their trigger, a test, a sample event, a README. Files that exist are kept
    as they are and listed.
    """
    output = Output(as_json)
    target = Path(folder)
    created: list[str] = []
    kept: list[str] = []
    for name, text in _templates(files("ops").joinpath("scaffold"), ""):
        (created if _write_new(target / name, text) else kept).append(name)
    if as_json:
        output.document({"folder": str(target), "created": created, "kept": kept})
        return OK
    for name in created:
        output.line(f"created  {target / name}")
    for name in kept:
        output.line(f"kept     {target / name}  (already there)")
    output.note(f"next: read {target / 'README.md'}, then a44 dev {target}")
    return OK


def _templates(folder: Traversable, prefix: str) -> list[tuple[str, str]]:
    """Each template's path in the new folder, with its text."""
    found: list[tuple[str, str]] = []
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.is_dir():
            found += _templates(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            found.append((prefix + entry.name.removesuffix(_SUFFIX), entry.read_text("utf-8")))
    return found


def _write_new(path: Path, text: str) -> bool:
    """Whether the file was written; one that exists is left alone."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        if path.parent.is_dir():
            return False
        raise Refused("E_INVALID_PARAMETER", f"{path.parent} is not a folder; expected a folder or nothing") from None
    except OSError as exc:
        raise Refused("E_INVALID_PARAMETER", f"{path} cannot be written: {exc.strerror}") from exc
    return True
