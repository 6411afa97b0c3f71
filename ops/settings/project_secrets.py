"""The secrets file: one table for each project, one text for each secret reference."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from schemas.errors import Refused


def read_secrets(path: Path) -> Mapping[str, Mapping[str, str]]:
    """Secrets by project and reference (`sec_x`). Values are never part of an error."""
    try:
        text = path.read_text("utf-8")
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as exc:
        raise _refused(path, f"it cannot be read ({_reason(exc)})") from exc
    if not isinstance(found, dict):
        raise _refused(path, "it does not hold one table for each project")
    for project, secrets in found.items():
        if not isinstance(secrets, dict):
            raise _refused(path, f"{project!r} stands outside a project's table")
        for name, value in secrets.items():
            if not isinstance(value, str):
                raise _refused(path, f"{project}.{name} is not a text")
    return found


def _reason(exc: OSError | ValueError) -> str:
    """Why, without a piece of the file: a decoder's message may quote it."""
    if isinstance(exc, OSError):
        return exc.strerror or type(exc).__name__
    return "not valid JSON" if isinstance(exc, json.JSONDecodeError) else "not valid TOML"


def _refused(path: Path, seen: str) -> Refused:
    return Refused(
        "E_CONFIG",
        f'secrets_file {path}: {seen}; expected TOML tables or JSON objects such as [pj_shop] with sec_partner = "..."',
        details={"setting": "secrets_file"},
    )
