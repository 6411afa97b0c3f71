"""`a44 auth` and the credentials file: owner-only, whole, by profile; the environment over it."""

import io
import json
import stat
import sys
import threading
from pathlib import Path

import pytest

from ops.cli import auth
from ops.cli.credentials import Login, change_credentials, read_credentials
from schemas.errors import Refused
from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import PROJECT, TOKEN, RestService


def login(a44: Command, service: RestService, *more: str, token: str = TOKEN):
    return a44("auth", "login", "--project", PROJECT, "--url", service.url, *more, stdin=f"{token}\n".encode())


def test_a_login_is_kept_for_the_owner_alone(a44: Command, service: RestService, home: Path) -> None:
    outcome = login(a44, service)
    assert (outcome.code, outcome.out) == (0, "")
    file = home / "credentials"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert TOKEN not in outcome.err
    assert [path.name for path in home.iterdir()] == ["credentials"]


def test_a_token_that_is_not_valid_or_of_another_project_is_not_stored(
    a44: Command, service: RestService, home: Path
) -> None:
    assert login(a44, service, token="a44_other").code == 3
    outcome = a44("auth", "login", "--project", "pj_other", "--url", service.url, "--token", TOKEN)
    assert outcome.code == 2
    assert PROJECT in outcome.err
    assert not (home / "credentials").exists()


def test_a_login_can_be_stored_without_the_service(a44: Command, home: Path) -> None:
    arguments = ("--url", "http://127.0.0.1:9", "--token", "t", "--no-verify")
    assert a44("auth", "login", "--project", "pj_x", *arguments).code == 0
    assert read_credentials().profiles["pj_x"] == Login("http://127.0.0.1:9", "t", "pj_x")


def test_credentials_that_others_can_read_are_refused_with_the_way_out(
    a44: Command, service: RestService, home: Path
) -> None:
    login(a44, service)
    (home / "credentials").chmod(0o640)
    outcome = a44("auth", "whoami")
    assert outcome.code == 2
    assert "0640" in outcome.err
    assert f"chmod 600 {home / 'credentials'}" in outcome.err


def test_whoami_tells_where_the_token_came_from(
    a44: Command, service: RestService, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login(a44, service)
    found = a44("auth", "whoami", "--json").document
    assert found["project_id"] == PROJECT
    assert found["sources"]["token"] == str(home / "credentials")
    monkeypatch.setenv("A44_TOKEN", "a44_other")
    assert a44("auth", "whoami").code == 3


def test_the_environment_wins_over_the_file_field_by_field(
    a44: Command, service: RestService, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a44("auth", "login", "--project", PROJECT, "--url", "http://127.0.0.1:9", "--token", "old", "--no-verify")
    monkeypatch.setenv("A44_URL", service.url)
    monkeypatch.setenv("A44_TOKEN", TOKEN)
    sources = a44("auth", "whoami", "--json").document["sources"]
    assert sources == {"url": "A44_URL", "token": "A44_TOKEN", "project": "not set"}


def test_a_broken_file_does_not_matter_where_the_environment_says_it_all(
    a44: Command, logged_in: RestService, home: Path
) -> None:
    home.mkdir()
    (home / "credentials").write_text("{")
    assert a44("auth", "whoami").code == 0


def test_a_broken_file_says_how_to_get_a_new_one(a44: Command, home: Path) -> None:
    home.mkdir()
    (home / "credentials").touch(0o600)
    (home / "credentials").write_text('{"projects": []}')
    outcome = a44("auth", "whoami")
    assert outcome.code == 2
    assert "a44 auth login" in outcome.err


def test_no_credentials_say_how_to_get_some(a44: Command, home: Path) -> None:
    outcome = a44("automation", "runs", "--json")
    assert outcome.code == 2
    assert outcome.problem["code"] == "E_CREDENTIALS"
    assert "a44 auth login" in outcome.problem["detail"]


def test_use_selects_and_logout_forgets(a44: Command, home: Path) -> None:
    for name in ("pj_a", "pj_b"):
        a44("auth", "login", "--project", name, "--url", "http://127.0.0.1:9", "--token", "t", "--no-verify")
    assert read_credentials().default == "pj_b"
    assert a44("auth", "use", "pj_a").code == 0
    assert read_credentials().default == "pj_a"
    assert a44("auth", "use", "pj_none").code == 2
    assert a44("auth", "logout", "--project", "pj_a").code == 0
    assert set(read_credentials().profiles) == {"pj_b"}
    assert read_credentials().default is None


def test_there_is_no_question_without_a_terminal(a44: Command, service: RestService, home: Path) -> None:
    outcome = login(a44, service, token="")
    assert outcome.code == 2
    assert "--token" in outcome.err


def test_logins_at_the_same_time_all_survive(home: Path) -> None:
    def log_in(number: int) -> None:
        change_credentials(lambda stored: stored.with_login(f"pj_{number}", Login("http://127.0.0.1:9", "t", "pj_a")))

    threads = [threading.Thread(target=log_in, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_credentials().profiles) == 20


def test_a_failed_write_leaves_the_old_file_and_nothing_else(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_credentials(lambda stored: stored.with_login("pj_a", Login("http://127.0.0.1:9", "t", "pj_a")))

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(Refused, match="No space left"):
        change_credentials(lambda stored: stored.with_login("pj_b", Login("http://127.0.0.1:9", "t", "pj_a")))
    monkeypatch.undo()
    assert [path.name for path in home.iterdir()] == ["credentials"]
    assert list(json.loads((home / "credentials").read_text())["profiles"]) == ["pj_a"]


def test_a_token_in_clear_text_over_the_network_is_warned_about(a44: Command, home: Path) -> None:
    arguments = ("--token", "t", "--no-verify")
    outcome = a44("auth", "login", "--project", "pj_x", "--url", "http://a44.example", *arguments)
    assert "HTTPS" in outcome.err


@pytest.mark.parametrize("url", ["", "ftp://x", "127.0.0.1:80", "http://", "http://x:99999", "http://u:p@x"])
def test_an_address_that_is_none_is_wrong_use(a44: Command, home: Path, url: str) -> None:
    outcome = a44("auth", "login", "--project", "pj_x", f"--url={url or ' '}", "--token", "t", "--no-verify")
    assert outcome.code == 2
    assert "E_CONFIG" in outcome.err


@pytest.mark.parametrize("span", ["30", "0d", "soon", "1w"])
def test_a_tokens_span_is_hours_or_days(a44: Command, home: Path, span: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A44_POSTGRES_DSN", "postgresql://127.0.0.1:9/none")
    arguments = ("--project", "pj_x", "--name", "ci", "--scope", "automation:write", "--expires", span)
    outcome = a44("auth", "token", "create", *arguments)
    assert outcome.code == 2
    assert "--expires" in outcome.err


def test_the_question_for_a_token_is_asked_on_a_terminal_alone(
    service: RestService, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("getpass.getpass", lambda *_, **__: TOKEN)
    assert auth._read_token() == TOKEN


def test_a_token_is_made_for_a_named_project(a44: Command, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A44_POSTGRES_DSN", "postgresql://127.0.0.1:9/none")
    outcome = a44("auth", "token", "create", "--name", "ci", "--scope", "automation:write")
    assert outcome.code == 2
    assert "expected --project, A44_PROJECT or a login" in outcome.err
