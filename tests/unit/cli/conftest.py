"""The command line run in this process, against a service of the test's own."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ops.cli.app import run
from tests.unit.cli.rest_service import PROJECT, TOKEN, RestService, running_rest_service

Command = Callable[..., "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """What one command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def problem(self) -> Any:
        return json.loads(self.err)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home of the command, and nothing of the user's environment."""
    for name in ("A44_URL", "A44_TOKEN", "A44_PROJECT", "A44_PROFILE", "A44_CONFIG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    monkeypatch.setenv("A44_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def a44(home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run one command line with what is piped into it."""

    def command(*arguments: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capfd.readouterr()
        code = run(arguments)
        said = capfd.readouterr()
        return Outcome(code, said.out, said.err)

    return command


@pytest.fixture
def service() -> Iterator[RestService]:
    with running_rest_service() as running:
        yield running


@pytest.fixture
def logged_in(service: RestService, home: Path, monkeypatch: pytest.MonkeyPatch) -> RestService:
    """The service, with its address and token in the environment."""
    monkeypatch.setenv("A44_URL", service.url)
    monkeypatch.setenv("A44_TOKEN", TOKEN)
    monkeypatch.setenv("A44_PROJECT", PROJECT)
    return service
