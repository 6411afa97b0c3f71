"""Reads settings: the environment over a file over the defaults, all checked before anything starts.

The file is the one that is named (`--config`, `A44_CONFIG`), or `a44.toml` in the current folder where
it exists. An unknown name in it is refused; an unknown `A44_` variable is reported as a warning.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from ops.settings.fields import Settings, expected
from ops.settings.masking import MASK, masked
from processors.ports import crash_points
from schemas.errors import Refused

DEFAULT_FILE = "a44.toml"
_SECRET = frozenset({"master_key", "postgres_dsn", "storage_secret_key"})
_READ_ELSEWHERE = ("A44_SECRET_", "A44_TEST_", "A44_CRASH_")
_NOT_SETTINGS = frozenset({"A44_URL", "A44_TOKEN", "A44_PROJECT", "A44_PROFILE", "A44_HOME", "A44_CONFIG"})


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings with the source of each (`environment`, `file` or `default`) and the file that was read."""

    settings: Settings
    sources: Mapping[str, str]
    file: Path | None
    warnings: tuple[str, ...]

    def shown(self) -> dict[str, dict[str, object]]:
        """Each setting as it may be shown: value, source, what it does."""
        return {
            name: {
                "value": masked(getattr(self.settings, name)),
                "source": self.sources[name],
                "description": field.description or "",
            }
            for name, field in Settings.model_fields.items()
        }


def load(config: Path | None = None) -> Loaded:
    """Raises `E_CONFIG` with every fault in `details["errors"]`."""
    crash_points.check()
    file, from_file = _read_file(config)

    class Here(Settings):
        """The settings with the file of this call as their last source."""

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the signature is the library's
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the signature is the library's
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=from_file)

    set_in_environment = {name for name in Settings.model_fields if os.environ.get(f"A44_{name.upper()}")}
    sources = {
        name: "environment" if name in set_in_environment else "file" if name in from_file else "default"
        for name in Settings.model_fields
    }
    try:
        settings = Here()
    except ValidationError as exc:
        raise _refused(exc.errors(include_url=False), sources, from_file, file) from exc
    return Loaded(settings, sources, file, tuple(_unknown_variables()))


def _read_file(config: Path | None) -> tuple[Path | None, dict[str, Any]]:
    named = config or (Path(os.environ["A44_CONFIG"]) if os.environ.get("A44_CONFIG") else None)
    path = named or Path(DEFAULT_FILE)
    if named is None and not path.is_file():
        return None, {}
    try:
        return path, tomllib.loads(path.read_text("utf-8"))
    except OSError as exc:
        raise Refused("E_CONFIG", f"the settings file {path} cannot be read: {exc.strerror}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise Refused("E_CONFIG", f"the settings file {path} is not valid TOML: {exc}") from exc
    except UnicodeDecodeError as exc:
        raise Refused("E_CONFIG", f"the settings file {path} is not UTF-8 text") from exc


def _refused(
    errors: list[ErrorDetails], sources: Mapping[str, str], from_file: Mapping[str, Any], file: Path | None
) -> Refused:
    lines = [_explain(error, sources, from_file, file) for error in errors]
    listed = [{"setting": str(error["loc"][0]), "message": line} for error, line in zip(errors, lines, strict=True)]
    return Refused("E_CONFIG", "; ".join(lines), details={"errors": listed})


def _explain(error: ErrorDetails, sources: Mapping[str, str], from_file: Mapping[str, Any], file: Path | None) -> str:
    name = str(error["loc"][0])
    if name not in Settings.model_fields:
        return f"{name} in {file} is not a setting{_nearest(name, Settings.model_fields)}"
    if sources[name] == "environment":
        variable = f"A44_{name.upper()}"
        where, seen = variable, repr(os.environ[variable])
    else:
        where, seen = f"{name} in {file}", repr(from_file.get(name))
    if name in _SECRET or "@" in seen:  # a password stands before it, where an address was meant
        seen = MASK
    return f"{where} is {seen}; expected {expected(name)}"


def _unknown_variables() -> list[str]:
    known = {f"A44_{name.upper()}" for name in Settings.model_fields} | _NOT_SETTINGS
    return [
        f"{name} is set in the environment but is not a setting{_nearest(name, known)}"
        for name in sorted(os.environ)
        if name.startswith("A44_") and name not in known and not name.startswith(_READ_ELSEWHERE)
    ]


def _nearest(name: str, known: Mapping[str, object] | set[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
