"""`a44 doctor`: its table, its JSON, its exit code; on real servers in tests/integration/embedded/test_doctor.py."""

import socket

import pytest

from ops.doctor.machine import _other_versions
from tests.unit.cli.conftest import Command
from tests.unit.cli.rest_service import RestService, prepared


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, home: object) -> None:
    for name in ("A44_POSTGRES_DSN", "A44_KAFKA_BOOTSTRAP", "A44_PYTHON"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def states(document: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {one["check"]: one["state"] for one in document["checks"]}


def test_what_nobody_named_is_skipped_and_no_failure(a44: Command) -> None:
    outcome = a44("doctor", "--json")
    assert (outcome.code, outcome.document["ok"]) == (0, True)
    seen = states(outcome.document)
    assert (seen["database"], seen["broker"]) == ("skipped", "skipped")
    assert seen["step python"] == "ok"


def test_a_stopped_part_fails_with_its_way_out(a44: Command, closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A44_POSTGRES_DSN", f"postgresql://a44@127.0.0.1:{closed_port}/a44")
    monkeypatch.setenv("A44_URL", f"http://127.0.0.1:{closed_port}")
    outcome = a44("doctor")
    assert outcome.code == 1
    assert "failed  database: start Postgres, or mend A44_POSTGRES_DSN" in outcome.out
    assert "failed  gateway: start it (a44 up --roles gateway), or mend A44_URL" in outcome.out
    assert "refuses connections" in outcome.out
    assert "postgresql://" not in outcome.out


def test_a_gateway_is_examined_with_its_token_and_clock(a44: Command, logged_in: RestService) -> None:
    logged_in.state.answers["/readyz"] = prepared({"status": "ready"})
    seen = states(a44("doctor", "--json").document)
    assert (seen["gateway"], seen["token"], seen["clock of gateway"]) == ("ok", "ok", "ok")


def test_a_gateway_that_is_not_ready_and_a_wrong_token_fail(
    a44: Command, logged_in: RestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in.state.answers["/readyz"] = prepared({"status": "not ready"}, 503)
    outcome = a44("doctor")
    assert (outcome.code, "a44 migrate" in outcome.out) == (1, True)
    logged_in.state.answers["/readyz"] = prepared({"status": "ready"})
    monkeypatch.setenv("A44_TOKEN", "a44_unknown")
    outcome = a44("doctor", "--json")
    assert (outcome.code, states(outcome.document)["token"]) == (1, "failed")


def test_a_step_python_without_the_sdk_fails(a44: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A44_PYTHON", "/nowhere/python3")
    outcome = a44("doctor")
    assert outcome.code == 1
    assert "set A44_PYTHON to another" in outcome.out


def test_other_versions_of_packages_are_named() -> None:
    pinned = ["typer==0.0.1", "psycopg[binary,pool]==3.3.9; extra == 'x'", "not-installed==1.0", "any>=1"]
    told = list(_other_versions(pinned))
    assert told[0].endswith("for 0.0.1")
    assert told[-1] == "not-installed none for 1.0"
