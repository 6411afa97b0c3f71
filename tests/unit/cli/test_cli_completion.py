"""Completion: commands, options and live ids; a Tab is quick, and silent when the service is away."""

import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from ops.cli.app import app
from ops.cli.completion import VARIABLE, candidates
from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import PROJECT, RUN, TOKEN, RestService
from tests.unit.cli.test_cli_manners import environment

ROOT = Path(__file__).parents[3]
ROOT_COMMAND = typer.main.get_command(app)


def offered(*words: str) -> list[str]:
    assert isinstance(ROOT_COMMAND, TyperGroup)
    return [value for value, _ in candidates(ROOT_COMMAND, words)]


def test_commands_and_options_are_offered(home: Path) -> None:
    assert offered("auto") == ["automation"]
    assert offered("automation", "we") == ["webhook"]
    assert offered("automation", "webhook", "s") == ["sign", "send"]
    assert offered("automation", "runs", "--st") == ["--state", "--step"]
    assert offered("automation", "runs", "--pro") == ["--project", "--profile"]
    assert offered("completion", "") == ["bash", "zsh", "fish"]


def test_live_ids_are_offered_where_they_are_taken(logged_in: RestService) -> None:
    logged_in.state.runs = [{"run_id": RUN, "workflow_id": "wf_x", "state": "failed"}]
    assert offered("automation", "show", "run_") == [RUN]
    assert offered("automation", "logs", "--follow", "") == [RUN]
    assert offered("automation", "run", "") == ["wf_x"]
    assert offered("automation", "runs", "--workflow", "wf") == ["wf_x"]
    assert offered("automation", "runs", "--workflow=w") == ["--workflow=wf_x"]
    assert offered("automation", "runs", "--workflow", "=", "w") == ["wf_x"]
    assert offered("automation", "webhook", "send", "--file", "f", "--trigger", "trg") == ["trg_x"]
    assert offered("automation", "show", RUN, "") == []
    assert "blocked" in offered("automation", "runs", "--state", "")


def test_the_login_that_the_line_names_is_asked(a44: Command, service: RestService) -> None:
    for name, url in (("there", service.url), ("away", "http://127.0.0.1:9")):
        arguments = ("--project", PROJECT, "--url", url, "--token", TOKEN, "--no-verify")
        assert a44("auth", "login", "--profile", name, *arguments).code == 0
    assert offered("auth", "use", "") == ["there", "away"]
    assert offered("--profile", "t") == ["there"]
    assert offered("automation", "workflows", "--project", "") == [PROJECT]
    assert offered("automation", "run", "") == []
    assert offered("--profile", "there", "automation", "run", "") == ["wf_x"]
    assert offered("automation", "run", "--profile", "there", "") == ["wf_x"]


def test_a_tab_is_silent_and_quick_when_the_service_is_away(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered("automation", "show", "") == []  # nobody is logged in
    monkeypatch.setenv("A44_TOKEN", "t")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("A44_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        assert offered("automation", "show", "") == []
        assert time.monotonic() - began < 10
    assert offered("automation", "show", "") == []  # it refuses connections
    home.mkdir()
    (home / "credentials").write_text("{")
    assert offered("auth", "use", "") == []


def test_what_a_service_answers_cannot_steer_the_terminal(logged_in: RestService) -> None:
    logged_in.state.runs = [{"run_id": "run_\x1b[2J", "workflow_id": "wf_x", "state": "failed"}]
    assert offered("automation", "show", "") == ["run_\\x1b[2J"]


def asked(env: dict[str, str], shell: str, *words: str) -> subprocess.CompletedProcess[str]:
    script = (
        "import sys; from ops.cli.app import main\n"
        "try: main()\n"
        "finally: print(sorted({'pydantic', 'rich', 'aiohttp', 'asyncio', 'yaml', 'psycopg', 'structlog', 'msgspec'}"
        " & set(sys.modules)), file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, *words]
    return subprocess.run(command, env={**env, VARIABLE: shell}, capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    ("shell", "line"), [("bash", f"{RUN}\n"), ("zsh", f"{RUN}:wf_x failed\n"), ("fish", f"{RUN}\twf_x failed\n")]
)
def test_each_shell_gets_its_form_and_nothing_heavy_is_loaded(
    service: RestService, tmp_path: Path, shell: str, line: str
) -> None:
    service.state.runs = [{"run_id": RUN, "workflow_id": "wf_x", "state": "failed"}]
    done = asked(environment(tmp_path, service), shell, "automation", "show", "run_")
    assert (done.stdout, done.stderr) == (line, "[]\n")


def test_a_script_is_printed_for_each_shell(a44: Command) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert VARIABLE in a44("completion", shell).out
        assert a44("completion", shell, "--json").document["shell"] == shell
    outcome = a44("completion", "tcsh")
    assert (outcome.code, "bash, zsh, fish" in outcome.err) == (2, True)


# What a person puts where the shell reads it when it starts, as the page says.
STARTUP = {
    "bash": (".bashrc", 'PS1="ready> "\neval "$(a44 completion bash)"\n'),
    "zsh": (".zshrc", 'PS1="ready> "\nautoload -Uz compinit\ncompinit -u -D\neval "$(a44 completion zsh)"\n'),
    "fish": (".config/fish/config.fish", "function fish_prompt; echo 'ready> '; end\na44 completion fish | source\n"),
}


@contextmanager
def terminal(shell: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """An interactive shell at a terminal of its own; what is typed there goes in, and what is shown comes out."""
    command = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", shell, "-i"]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[bytes], wanted: str) -> None:
    assert process.stdout is not None
    seen, deadline = b"", time.monotonic() + 60
    while wanted.encode() not in seen:
        ready, _, _ = select.select([process.stdout], [], [], max(deadline - time.monotonic(), 0))
        more = process.stdout.read(65_536) if ready else b""
        assert more, f"{wanted!r} did not appear: {seen!r}"
        seen += more


def type_in(process: subprocess.Popen[bytes], keys: str) -> None:
    assert process.stdin is not None
    process.stdin.write(keys.encode())


@pytest.mark.parametrize("shell", list(STARTUP))
def test_a_tab_at_a_real_terminal_completes_commands_and_live_ids(
    service: RestService, tmp_path: Path, shell: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    service.state.runs = [{"run_id": RUN, "workflow_id": "wf_x", "state": "failed"}]
    command = tmp_path / "a44"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from ops.cli.app import main; main()" "$@"\n')
    command.chmod(0o755)
    name, text = STARTUP[shell]
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    env = {**environment(tmp_path, service), "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    env |= {"HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "TERM": "xterm"}
    with terminal(shell, env) as shown:
        read_until(shown, "ready> ")
        type_in(shown, "a44 automation show run_\t")
        read_until(shown, RUN)
        type_in(shown, "\x15a44 automation we\t")  # a line begun anew
        read_until(shown, "webhook")
