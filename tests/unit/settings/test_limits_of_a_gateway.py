"""What a gateway's settings allow is what its limits are; and no more connections than the process may have files."""

import resource
from collections.abc import Iterator
from dataclasses import fields

import pytest
from structlog.testing import capture_logs

from ops.composition.files import within_files
from ops.composition.roles.gateway import limits_of
from ops.settings import Settings
from processors.gateway.limits import Limits
from processors.ports.addresses import networks_of

NOT_SETTINGS = {"body", "batch", "publication", "skew", "wait", "page", "attempts", "token_cache", "ping"}


@pytest.fixture
def files() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_without_settings_the_limits_are_their_own() -> None:
    assert limits_of(Settings()) == Limits()


def test_each_setting_reaches_its_limit() -> None:
    settings = Settings(
        trusted_proxies="10.0.0.0/8, 192.0.2.1",
        gateway_connections=41,
        gateway_connections_per_address=42,
        gateway_header_seconds=43,
        gateway_body_seconds=44,
        gateway_idle_seconds=45,
        gateway_bodies_mb=46,
        gateway_queued_requests=47,
        dedup_window_hours=48,
        redrive_rate=49,
    )
    limits = limits_of(settings)
    assert limits == Limits(
        trusted_proxies=networks_of(["10.0.0.0/8", "192.0.2.1/32"]),
        connections=41,
        connections_per_address=42,
        header_seconds=43,
        body_seconds=44,
        idle_seconds=45,
        bodies=46_000_000,
        queued=47,
        dedup_window=48 * 3600,
        redrive_rate=49,
    )
    same = {field.name for field in fields(Limits) if getattr(limits, field.name) == getattr(Limits(), field.name)}
    assert same == NOT_SETTINGS


def test_the_limit_of_files_is_raised_as_far_as_connections_need(files: tuple[int, int]) -> None:
    _, hard = files
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    assert within_files(600) == 600
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 856


def test_more_connections_than_files_are_cut_and_told(files: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (512, 1024))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    with capture_logs() as logs:
        assert within_files(4000) == 768
    assert logs[0]["event"] == "connections_bounded_by_files"
    assert (logs[0]["wanted"], logs[0]["fits"]) == (4000, 768)
