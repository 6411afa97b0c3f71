"""Settings: their sources, their bounds, what is said of a wrong one, and what is never shown."""

import json
import os
import sys
from pathlib import Path

import pytest

from ops.cli.app import run
from ops.settings import ROLES, Settings, load, masked, parse_roles, read_secrets
from schemas.errors import Refused

KEY = "ab" * 32
DSN = "postgresql://a44:s3cret@db.example:5432/a44"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [*Settings.model_fields, "config", "url", "token", "project"]:
        monkeypatch.delenv(f"A44_{name.upper()}", raising=False)
    monkeypatch.setenv("A44_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def write(tmp_path: Path, text: str, name: str = "a44.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 'topic_prefix = "from-file"\npartitions = 3\n')
    monkeypatch.setenv("A44_PARTITIONS", "5")
    loaded = load()
    assert (loaded.settings.topic_prefix, loaded.settings.partitions) == ("from-file", 5)
    assert loaded.settings.gateway_port == 8044
    assert loaded.sources["topic_prefix"] == "file"
    assert loaded.sources["partitions"] == "environment"
    assert loaded.sources["gateway_port"] == "default"


def test_a_file_may_be_named_by_option_or_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = write(tmp_path, "partitions = 3", "other.toml")
    assert load(named).settings.partitions == 3
    monkeypatch.setenv("A44_CONFIG", str(named))
    assert load().settings.partitions == 3
    monkeypatch.setenv("A44_CONFIG", str(tmp_path / "gone.toml"))
    with pytest.raises(Refused, match=r"gone\.toml cannot be read"):
        load()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gateway_port", "abc"),
        ("gateway_port", "65536"),
        ("partitions", "0"),
        ("trusted_proxies", "10.0.0.0/8,proxy.example"),
        ("trusted_proxies", "10.0.0.1/8"),
        ("gateway_connections", "0"),
        ("gateway_header_seconds", "nan"),
        ("gateway_bodies_mb", "15"),
        ("kafka_bootstrap", "no-port"),
        ("topic_prefix", "a b"),
        ("lease_seconds", "0.1"),
        ("lease_seconds", "nan"),
        ("executor_slots", "-1"),
        ("allow_private_egress", "perhaps"),
        ("log_level", "loud"),
        ("dedup_window_hours", "0"),
        ("dedup_window_hours", "72.5"),
        ("secrets_file", "/nowhere/secrets.toml"),
        ("master_key", "zz"),
        ("master_key", "ab" * 31),
    ],
)
def test_a_wrong_value_names_the_setting_what_was_seen_and_what_was_expected(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"A44_{name.upper()}", value)
    with pytest.raises(Refused) as caught:
        load()
    assert caught.value.code == "E_CONFIG"
    assert f"A44_{name.upper()} is " in caught.value.message
    assert "expected" in caught.value.message
    assert (repr(value) in caught.value.message) == (name != "master_key")


def test_every_wrong_value_is_listed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 'partitions = "many"\ntopik_prefix = "x"\n')
    monkeypatch.setenv("A44_GATEWAY_PORT", "x")
    with pytest.raises(Refused) as caught:
        load()
    errors = caught.value.details["errors"]
    assert isinstance(errors, list)
    assert {error["setting"] for error in errors} == {"partitions", "topik_prefix", "gateway_port"}
    assert "did you mean topic_prefix?" in caught.value.message


@pytest.mark.parametrize("text", ["partitions = ", "\x00", "partitions = 1\npartitions = 2"])
def test_a_file_that_is_not_toml_is_refused_with_its_reason(tmp_path: Path, text: str) -> None:
    with pytest.raises(Refused, match="not valid TOML"):
        load(write(tmp_path, text))


def test_a_variable_that_is_no_setting_is_a_warning_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A44_POSTGRES_DNS", DSN)
    monkeypatch.setenv("A44_SECRET_PJ_X_SEC_Y", "secret")
    (warning,) = load().warnings
    assert "did you mean A44_POSTGRES_DSN?" in warning
    assert "s3cret" not in warning


@pytest.mark.parametrize(
    "line",
    [
        'schema_registry_url = "ftp://registry:s3cret@registry.example"',
        'storage_url = "s4://key:s3cret@bucket"',
        'kafka_bootstrap = "user:s3cret@kafka.example:9092"',
        'storage_secret_key = ["s3cret"]',
        'postgres_dsn = ["s3cret"]',
    ],
)
def test_a_wrong_value_that_holds_a_secret_is_told_without_it(tmp_path: Path, line: str) -> None:
    with pytest.raises(Refused) as caught:
        load(write(tmp_path, line))
    assert "is ********; expected" in caught.value.message
    assert "s3cret" not in caught.value.message + json.dumps(caught.value.details)


def test_secrets_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A44_MASTER_KEY", KEY)
    monkeypatch.setenv("A44_POSTGRES_DSN", DSN)
    loaded = load()
    assert loaded.settings.master_key_bytes() == bytes.fromhex(KEY)
    said = repr(loaded) + json.dumps(loaded.shown())
    assert KEY not in said
    assert "s3cret" not in said
    assert "db.example:5432" in json.dumps(loaded.shown())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgresql://u:p@ss:w@h/db", "postgresql://u:********@h/db"),
        ("host=h password='a b' user=u", "host=h password=******** user=u"),
        ("host=h PASSWORD = x dbname=d", "host=h PASSWORD = ******** dbname=d"),
        ("postgresql://h/db?password=x&sslmode=require", "postgresql://h/db?password=********&sslmode=require"),
        ("postgresql://h/db", "postgresql://h/db"),
        (5, 5),
        (None, None),
    ],
)
def test_passwords_inside_addresses_are_masked(value: object, shown: object) -> None:
    assert masked(value) == shown


def test_a_role_says_what_it_lacks() -> None:
    with pytest.raises(Refused, match="postgres_dsn is not set"):
        Settings().require_for(["relay"])
    with pytest.raises(Refused, match="A44_KAFKA_BOOTSTRAP"):
        Settings(postgres_dsn=DSN).require_for(["scheduler", "ingest"])
    with pytest.raises(Refused, match="master_key is not set"):
        Settings(postgres_dsn=DSN).require_for(["gateway"])
    complete = Settings(postgres_dsn=DSN, kafka_bootstrap="127.0.0.1:9092", master_key=KEY)
    complete.require_for(ROLES)
    with pytest.raises(Refused, match="no-such-python"):
        complete.model_copy(update={"python": "no-such-python"}).require_for(["executor"])
    Settings(postgres_dsn=DSN).require_for(["scheduler"])


def test_roles_are_known_and_each_counts_once() -> None:
    assert parse_roles("relay, gateway,relay") == ("relay", "gateway")
    with pytest.raises(Refused, match=r"unknown role 'relais'; the known roles are gateway, relay"):
        parse_roles("gateway,relais")
    with pytest.raises(Refused, match="no role"):
        parse_roles(" , ")


def test_each_process_has_an_owner_name_of_its_own() -> None:
    assert load().settings.owner.endswith(f"-{os.getpid()}")
    assert load().settings.python == sys.executable


def test_secrets_of_projects_are_read_from_toml_and_json(tmp_path: Path) -> None:
    expected = {"pj_shop": {"sec_partner": "x"}}
    assert read_secrets(write(tmp_path, '[pj_shop]\nsec_partner = "x"\n', "s.toml")) == expected
    assert read_secrets(write(tmp_path, json.dumps(expected), "s.json")) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.toml", 'sec = "hidden-value"'),
        ("s.toml", "[pj]\nsec = 44"),
        ("s.toml", "[pj]\nsec = hidden-value"),
        ("s.json", '["hidden-value"]'),
        ("s.json", '{"pj": hidden-value}'),
    ],
)
def test_a_wrong_secrets_file_is_refused_without_a_word_of_it(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(Refused) as caught:
        read_secrets(write(tmp_path, text, name))
    assert caught.value.code == "E_CONFIG"
    assert "hidden-value" not in str(caught.value)


def test_config_prints_each_setting_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "partitions = 3\n")
    monkeypatch.setenv("A44_POSTGRES_DSN", DSN)
    monkeypatch.setenv("A44_TOKEN", "a44_hidden")
    assert run(["config", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["file"] == "a44.toml"
    assert found["settings"]["partitions"] == {
        "value": 3,
        "source": "file",
        "description": Settings.model_fields["partitions"].description,
    }
    assert found["settings"]["postgres_dsn"]["source"] == "environment"
    assert found["client"]["token"]["source"] == "A44_TOKEN"
    assert run(["config"]) == 0
    said = capfd.readouterr().out
    assert set(Settings.model_fields) <= set(said.split())
    assert "s3cret" not in said
    assert "a44_hidden" not in said


def test_up_refuses_before_it_starts_anything(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["up", "--roles", "gateway,broker"]) == 2
    assert "the known roles are gateway, relay, ingest, scheduler, executor" in capfd.readouterr().err
    assert run(["up", "--roles", "gateway"]) == 2
    assert "postgres_dsn is not set" in capfd.readouterr().err
    monkeypatch.setenv("A44_GATEWAY_PORT", "high")
    assert run(["up"]) == 2
    assert "A44_GATEWAY_PORT is 'high'" in capfd.readouterr().err
    assert run(["migrate"]) == 2
