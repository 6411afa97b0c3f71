"""Profiles: several logins on one machine, and which of option, environment and file wins, value by value."""

import json
from pathlib import Path

import pytest

from ops.cli.credentials import read_credentials
from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import PROJECT, TOKEN, RestService

AWAY = "http://127.0.0.1:9"


@pytest.fixture
def two(a44: Command, service: RestService) -> None:
    """`staging` is the service, `prod` (selected) is away; both open one project."""
    for name, url in (("staging", service.url), ("prod", AWAY)):
        arguments = ("--project", PROJECT, "--url", url, "--token", TOKEN, "--no-verify")
        assert a44("--profile", name, "auth", "login", *arguments).code == 0


def client(a44: Command, *arguments: str) -> dict[str, dict[str, str]]:
    """What `a44 config` says that client commands use."""
    outcome = a44(*arguments, "config", "--json")
    assert outcome.code == 0, outcome.err
    found: dict[str, dict[str, str]] = outcome.document["client"]
    return found


@pytest.mark.usefixtures("two")
def test_one_project_may_be_opened_in_two_services(a44: Command, service: RestService) -> None:
    assert {name: login.project for name, login in read_credentials().profiles.items()} == {
        "staging": PROJECT,
        "prod": PROJECT,
    }
    assert a44("automation", "workflows").code == 5
    assert a44("automation", "workflows", "--profile", "staging").code == 0
    assert a44("--profile=staging", "automation", "workflows").code == 0
    told = a44("auth", "whoami", "--json", "--profile", "staging").document
    assert (told["profile"], told["url"], told["project_id"]) == ("staging", service.url, PROJECT)
    assert "profile  staging" in a44("auth", "whoami", "--profile", "staging").out


@pytest.mark.usefixtures("two")
def test_the_profile_of_the_option_wins_over_that_of_the_environment(
    a44: Command, service: RestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client(a44)["url"]["value"] == AWAY
    monkeypatch.setenv("A44_PROFILE", "staging")
    assert client(a44)["profile"] == {"value": "staging", "source": "A44_PROFILE"}
    assert client(a44)["url"]["value"] == service.url
    assert client(a44, "--profile", "prod")["profile"] == {"value": "prod", "source": "--profile"}
    assert client(a44, "--profile", "prod")["url"]["value"] == AWAY


@pytest.mark.usefixtures("two")
def test_the_environment_wins_over_the_file_and_the_option_over_the_environment(
    a44: Command, service: RestService, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A44_PROFILE", "prod")
    monkeypatch.setenv("A44_URL", "http://127.0.0.1:7")
    found = client(a44)
    assert found["url"] == {"value": "http://127.0.0.1:7", "source": "A44_URL"}
    assert found["token"]["source"] == str(home / "credentials")
    found = client(a44, "--profile", "staging")
    assert found["url"] == {"value": service.url, "source": str(home / "credentials")}
    monkeypatch.setenv("A44_TOKEN", "a44_of-the-environment")
    monkeypatch.setenv("A44_PROJECT", "pj_environment")
    found = client(a44)
    assert (found["project"]["value"], found["token"]["source"]) == ("pj_environment", "A44_TOKEN")
    found = client(a44, "--profile", "staging")
    assert (found["project"]["value"], found["token"]["source"]) == (PROJECT, str(home / "credentials"))
    assert a44("automation", "workflows", "--profile", "staging").code == 0


@pytest.mark.usefixtures("two")
def test_a_profile_that_is_not_there_is_told_with_those_that_are(a44: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = a44("automation", "runs", "--profile", "test", "--json")
    assert (outcome.code, outcome.problem["code"]) == (2, "E_CREDENTIALS")
    assert "only for: prod, staging; use a44 --profile test auth login" in outcome.problem["detail"]
    monkeypatch.setenv("A44_PROFILE", "test")
    assert a44("automation", "runs").code == 2


def test_a_token_of_the_environment_answers_for_no_other_project(
    a44: Command, service: RestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A44_URL", service.url)
    monkeypatch.setenv("A44_TOKEN", TOKEN)
    assert a44("automation", "workflows", "--project", PROJECT).code == 0
    for named in (None, PROJECT):
        monkeypatch.setenv("A44_PROJECT", named or "")
        outcome = a44("automation", "cancel", "run_1", "--project", "pj_other")
        assert outcome.code == 2
        assert f"A44_TOKEN belongs to '{PROJECT}', not to 'pj_other'" in outcome.err
    assert all(seen.path.endswith(("whoami", "workflows")) for seen in service.state.seen)


@pytest.mark.usefixtures("two")
def test_a_profile_and_a_project_that_contradict_each_other_are_refused(a44: Command) -> None:
    outcome = a44("automation", "runs", "--profile", "staging", "--project", "pj_other")
    assert outcome.code == 2
    assert f"opens '{PROJECT}', not 'pj_other'" in outcome.err


@pytest.mark.usefixtures("two")
def test_a_project_chooses_its_profile_and_several_must_be_told_apart(a44: Command, service: RestService) -> None:
    a44("auth", "use", "staging")
    assert a44("automation", "workflows", "--project", PROJECT).code == 0
    a44("auth", "login", "--project", "pj_other", "--url", AWAY, "--token", "t", "--no-verify")
    outcome = a44("automation", "workflows", "--project", PROJECT)
    assert outcome.code == 2
    assert "prod, staging; name one with --profile" in outcome.err
    assert a44("auth", "logout", "--profile", "prod").code == 0
    assert a44("automation", "workflows", "--project", PROJECT).code == 0
    assert a44("auth", "logout", "--project", PROJECT, "--json").document == {"project": PROJECT, "profile": "staging"}
    assert list(read_credentials().profiles) == ["pj_other"]
    assert a44("auth", "logout").code == 2


def test_a_file_of_before_there_were_profiles_is_read(a44: Command, service: RestService, home: Path) -> None:
    home.mkdir()
    (home / "credentials").touch(0o600)
    old = {"default_project": PROJECT, "projects": {PROJECT: {"url": service.url, "token": TOKEN}}}
    (home / "credentials").write_text(json.dumps(old))
    assert a44("automation", "workflows").code == 0
    assert a44("auth", "use", PROJECT).code == 0
    assert json.loads((home / "credentials").read_text()) == {
        "default_profile": PROJECT,
        "profiles": {PROJECT: {"project": PROJECT, "url": service.url, "token": TOKEN}},
    }


def test_a_profile_of_one_command_is_not_that_of_the_next(a44: Command, two: None, service: RestService) -> None:
    assert client(a44, "--profile", "staging")["url"]["value"] == service.url
    assert client(a44)["url"]["value"] == AWAY
    assert "--profile" in a44("--help").out
