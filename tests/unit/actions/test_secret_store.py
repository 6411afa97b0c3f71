"""Secrets from the environment and a file, read at the moment of use."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ops.secrets import SecretStore, variable_of
from schemas.errors import Refused


def _write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_variable_is_upper_case_with_underscores():
    assert variable_of("pj-checkout-prod", "sec_erp-client") == "A44_SECRET_PJ_CHECKOUT_PROD_SEC_ERP_CLIENT"


def test_the_environment_comes_first(tmp_path: Path):
    path = _write(tmp_path / "secrets.toml", '[pj_shop]\nsec_a = "from file"\nsec_b = "b"\n')
    store = SecretStore(path, {"A44_SECRET_PJ_SHOP_SEC_A": "from environment"})
    assert store.get("pj_shop", "sec_a") == "from environment"
    assert store.get("pj_shop", "sec_b") == "b"


def test_an_unknown_secret_says_how_to_set_it(tmp_path: Path):
    path = _write(tmp_path / "secrets.toml", '[pj_other]\nsec_a = "x"\n[pj_shop]\nsec_empty = ""\n')
    store = SecretStore(path, {})
    with pytest.raises(Refused) as refusal:
        store.get("pj_shop", "sec_a")
    assert refusal.value.code == "E_SECRET_UNKNOWN"
    assert "A44_SECRET_PJ_SHOP_SEC_A" in refusal.value.message
    assert "[pj_shop]" in refusal.value.message
    with pytest.raises(Refused, match="is empty"):
        store.get("pj_shop", "sec_empty")
    with pytest.raises(Refused, match="A44_SECRETS_FILE"):
        SecretStore(None, {}).get("pj_shop", "sec_a")


def test_a_changed_file_is_read_again(tmp_path: Path):
    path = _write(tmp_path / "secrets.toml", '[pj_shop]\nsec_a = "one"\n')
    store = SecretStore(path, {})
    assert store.get("pj_shop", "sec_a") == "one"
    _write(path, '[pj_shop]\nsec_a = "second"\n')
    assert store.get("pj_shop", "sec_a") == "second"
    replacement = _write(tmp_path / "new.toml", '[pj_shop]\nsec_a = "third!"\n')
    os.replace(replacement, path)  # noqa: PTH105 - as an editor or a secrets agent does
    assert store.get("pj_shop", "sec_a") == "third!"


def test_a_broken_or_vanished_file_keeps_what_was_read(tmp_path: Path):
    path = _write(tmp_path / "secrets.toml", '[pj_shop]\nsec_a = "kept"\n')
    store = SecretStore(path, {})
    _write(path, '[pj_shop\nsec_a = "hidden"\n')
    with capture_logs() as logs:
        assert store.get("pj_shop", "sec_a") == "kept"
        assert store.get("pj_shop", "sec_a") == "kept"
    assert [entry["event"] for entry in logs] == ["secrets_file_kept"]
    assert "hidden" not in str(logs)
    path.unlink()
    assert store.get("pj_shop", "sec_a") == "kept"


def test_a_broken_file_at_the_start_is_refused(tmp_path: Path):
    path = _write(tmp_path / "secrets.toml", "pj_shop = 1\n")
    with pytest.raises(Refused) as refusal:
        SecretStore(path, {})
    assert refusal.value.code == "E_CONFIG"


def test_a_file_that_others_may_read_is_warned_of(tmp_path: Path):
    path = _write(tmp_path / "secrets.toml", "", 0o644)
    with capture_logs() as logs:
        SecretStore(path, {})
    assert [(entry["event"], entry["mode"]) for entry in logs] == [("secrets_file_open", "0644")]
    path.chmod(0o600)
    with capture_logs() as logs:
        store = SecretStore(path, {})
    assert logs == []
    path.chmod(0o640)
    with capture_logs() as logs, pytest.raises(Refused):
        store.get("pj_shop", "sec_a")
    assert [entry["event"] for entry in logs] == ["secrets_file_open", "secrets_file_read"]


def test_values_are_not_shown(tmp_path: Path):
    path = _write(tmp_path / "secrets.toml", '[pj_shop]\nsec_a = "hush"\n')
    store = SecretStore(path, {})
    assert "hush" not in repr(store)
