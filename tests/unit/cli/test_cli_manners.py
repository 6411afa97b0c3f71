"""Help that teaches, exit codes, JSON problems, terminals, pipes, and a quick start."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from ops.cli.app import app
from ops.cli.output import duration, printable
from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import RUN, RestService, record

A44 = [sys.executable, "-c", "from ops.cli.app import main; main()"]


def commands() -> Iterator[tuple[str, object]]:
    def walk(command: object, path: str) -> Iterator[tuple[str, object]]:
        nested = getattr(command, "commands", None)
        if nested is None:
            yield path, command
            return
        for name, one in nested.items():
            yield from walk(one, f"{path} {name}")

    return walk(typer.main.get_command(app), "a44")


def environment(home: Path, service: RestService | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("A44_")}
    address = {"A44_URL": service.url, "A44_TOKEN": "a44_known-token"} if service else {}
    return {**kept, **address, "A44_HOME": str(home), "TERM": "xterm", "COLUMNS": "200"}


@pytest.mark.parametrize(("path", "command"), list(commands()))
def test_every_command_teaches_by_an_example_of_itself(a44: Command, path: str, command: object) -> None:
    outcome = a44(*path.split()[1:], "--help")
    assert outcome.code == 0
    example = outcome.out.split("Example:")[1]
    assert path in example
    assert len(outcome.out.splitlines()[2].strip()) > 10


@pytest.mark.parametrize(("path", "command"), list(commands()))
def test_every_command_that_answers_takes_json(path: str, command: object) -> None:
    options = {option for param in command.params for option in param.opts}  # type: ignore[attr-defined]
    assert ("--json" in options) == (path not in ("a44 up", "a44 dev"))


def test_the_exit_codes_stand_in_the_help(a44: Command) -> None:
    for arguments in (("--help",), ("automation", "--help")):
        shown = a44(*arguments).out
        assert "Exit codes:" in shown
        assert all(f"\n    {code} " in shown for code in (0, 1, 2, 3, 4, 5, 130))


def test_wrong_arguments_name_the_option_and_where_the_help_is(a44: Command) -> None:
    outcome = a44("automation", "runs", "--limit", "many")
    assert outcome.code == 2
    assert "--limit" in outcome.err
    assert "'many' is not a whole number" in outcome.err
    assert "a44 automation runs --help" in outcome.err
    assert outcome.err.startswith("E_INVALID_PARAMETER  ")
    assert "from 1 to 10000" in a44("automation", "runs", "--limit", "0").err


def test_wrong_arguments_are_a_problem_with_json(a44: Command) -> None:
    outcome = a44("automation", "show", "--json")
    assert outcome.code == 2
    assert outcome.problem["code"] == "E_INVALID_PARAMETER"
    assert outcome.problem["status"] == 400


def test_a_service_that_is_not_there_is_unavailable(a44: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A44_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("A44_TOKEN", "t")
    outcome = a44("automation", "runs")
    assert outcome.code == 5
    assert "http://127.0.0.1:9 refuses connections" in outcome.err


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (502, b"<html>bad gateway</html>", 5),
        (500, b"oops", 5),
        (404, b"nothing here", 4),
        (302, b"", 3),
        (200, b"<html>welcome</html>", 5),
        (200, b"[]", 5),
        (200, b"{}", 5),
    ],
)
def test_an_answer_of_another_service_is_recognised(
    a44: Command, logged_in: RestService, status: int, body: bytes, code: int
) -> None:
    logged_in.state.answers["/v1/automation/runs"] = (status, body, "text/html")
    outcome = a44("automation", "runs")
    assert outcome.code == code
    assert "address" in outcome.err


def test_a_code_of_a_newer_service_is_shown_as_it_came(a44: Command, logged_in: RestService) -> None:
    problem = {"code": "E_FROM_TOMORROW", "title": "Something new", "detail": "not yet known here", "status": 409}
    logged_in.state.answers["/v1/automation/runs"] = (409, json.dumps(problem).encode(), "application/problem+json")
    assert a44("automation", "runs").err.startswith("E_FROM_TOMORROW  Something new\n  not yet known here")
    assert a44("automation", "runs", "--json").problem["title"] == "Something new"


def test_a_defect_is_reported_with_its_traceback_and_a_code_of_its_own(
    a44: Command, logged_in: RestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ops.client.rest.Client.runs", lambda *_, **__: {}["gone"])
    outcome = a44("automation", "runs")
    assert outcome.code == 70
    assert "Traceback" in outcome.err
    assert "E_INTERNAL" in outcome.err


def test_text_from_outside_cannot_steer_the_terminal(a44: Command, logged_in: RestService) -> None:
    logged_in.state.records = [record(1, "pay\x1b[2J", "failed", error_code="E_X", error="\x1b]0;x\x07 line\nend")]
    shown = a44("automation", "logs", RUN).out
    assert "\x1b" not in shown
    assert "\\x1b[2J" in shown
    assert len(shown.splitlines()) == 1
    assert printable("é\tü\x00\u202e") == "é ü\\x00\\u202e"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.012, "12ms"), (0.4, "0.4s"), (9.94, "9.9s"), (35.2, "35s"), (250, "4m10s"), (7500, "2h05m"), (59.7, "1m00s")],
)
def test_spans_of_time_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def on_terminal(arguments: list[str], env: dict[str, str]) -> str:
    """What a command shows on a terminal of its own."""
    primary, secondary = pty.openpty()
    with subprocess.Popen([*A44, *arguments], stdin=secondary, stdout=secondary, stderr=secondary, env=env) as process:
        os.close(secondary)
        shown = b""
        try:
            while piece := os.read(primary, 65536):
                shown += piece
        except OSError:  # how Linux tells that the other side has closed
            pass
        os.close(primary)
    assert process.returncode == 0
    return shown.decode()


def test_a_terminal_gets_tables_and_colours_and_no_color_takes_the_colours(
    service: RestService, tmp_path: Path
) -> None:
    service.state.runs = [{"run_id": RUN, "workflow_id": "wf_x", "version": "3", "state": "failed"}]
    env = environment(tmp_path, service) | {"COLUMNS": "120"}
    coloured = on_terminal(["automation", "runs"], env)
    assert "\x1b[31m" in coloured
    assert "───" in coloured
    narrow = on_terminal(["automation", "runs"], env | {"COLUMNS": "60"})
    assert "\x1b[31m" in narrow
    assert "───" not in narrow
    assert f"{RUN}  wf_x  " in narrow
    plain = on_terminal(["automation", "runs"], env | {"NO_COLOR": "1"})
    assert "\x1b[3" not in plain
    assert RUN in plain
    assert on_terminal(["automation", "runs", "--json"], env).startswith('{\r\n  "total": 1')


def test_a_reader_that_leaves_early_is_no_error_to_look_at(service: RestService, tmp_path: Path) -> None:
    service.state.runs = [{"run_id": f"run_{n:026}", "state": "failed" * 50} for n in range(500)]
    service.state.page = 500
    with subprocess.Popen(
        [*A44, "automation", "runs", "--limit", "500"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path, service),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        complaint = process.stderr.read()
    assert (process.returncode, complaint) == (141, b"")


def test_a_command_whose_output_is_closed_still_ends_well(service: RestService, tmp_path: Path) -> None:
    line = ["sh", "-c", 'exec "$@" >&-', "sh", *A44, "automation", "runs"]
    done = subprocess.run(line, stderr=subprocess.PIPE, env=environment(tmp_path, service), check=False)
    assert (done.returncode, done.stderr) == (0, b"")


# A suite that a shell has put into the background passes on that Ctrl-C is not for it.
HEEDING_INTERRUPTS = (
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])",
)


def test_ctrl_c_ends_a_command_without_a_traceback(service: RestService, tmp_path: Path) -> None:
    service.state.records = [record(1, "pay")]
    service.state.end_state = None
    with subprocess.Popen(
        [*HEEDING_INTERRUPTS, *A44, "automation", "logs", RUN, "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path, service),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        complaint = process.stderr.read()
    assert (process.returncode, complaint) == (130, b"interrupted\n")


@pytest.mark.parametrize("arguments", [["automation", "runs"], ["auth", "whoami"], ["--help"], ["--version"]])
def test_small_commands_load_nothing_heavy(service: RestService, tmp_path: Path, arguments: list[str]) -> None:
    service.state.runs = [{"run_id": RUN, "state": "failed"}]
    script = (
        "import sys; from ops.cli.app import run; code = run(sys.argv[1:])\n"
        "heavy = {'pydantic', 'rich', 'aiohttp', 'asyncio', 'yaml', 'psycopg', 'structlog', 'msgspec'}\n"
        "print(code, sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=environment(tmp_path, service), capture_output=True, check=True
    )
    assert done.stderr.decode() == "0 []\n"
