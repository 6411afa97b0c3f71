"""The allow-list of variables, accounts, and how an end is described."""

import os
import signal

import pytest

from processors.executor.hosts.account import Account, wanted_account
from processors.executor.hosts.process import describe_exit, environment_for
from processors.executor.hosts.settings import HostSettings


def test_only_what_is_allowed_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        os, "environ", {"PATH": "/bin", "LANG": "C", "LC_TIME": "C", "A44_X": "s", "P": "1", "PYTHONHASHSEED": "7"}
    )
    seen = environment_for(("P", "ABSENT"), {"TZ": "Mars", "MORE": "2"})
    assert {name: seen[name] for name in ("PATH", "LANG", "LC_TIME", "P", "MORE", "TZ", "PYTHONHASHSEED")} == {
        "PATH": "/bin", "LANG": "C", "LC_TIME": "C", "P": "1", "MORE": "2", "TZ": "UTC", "PYTHONHASHSEED": "0",
    }  # fmt: skip
    assert not seen.keys() & {"A44_X", "ABSENT"}


def test_an_account_is_changed_by_root_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert wanted_account(HostSettings()) == Account()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert wanted_account(HostSettings(drop_root=False)) == Account()
    assert wanted_account(HostSettings(account=(70_001, 70_002))) == Account(70_001, 70_002)
    assert wanted_account(HostSettings()).uid != 0


def test_an_end_is_told_as_code_or_signal() -> None:
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-signal.SIGKILL) == "signal SIGKILL"
    assert describe_exit(-200) == "signal 200"
