"""What Prometheus reads: every measure under its own name, as it stands at that moment."""

import socket
import threading

import pytest

from ops.cli.app import run
from ops.settings import load
from ops.telemetry import exported
from processors.ports.measures import MEASURES, Kind, Measures
from schemas.errors import Refused
from tests.support.scraping import sample, scrape


async def test_a_value_is_read_when_it_is_asked_for() -> None:
    measures = Measures()
    async with exported(measures, 0) as told:
        measures.count("lease_reclaim_total", 3)
        assert (await scrape(told["metrics"]))[sample("lease_reclaim_total")] == 3
        measures.count("lease_reclaim_total")
        assert (await scrape(told["metrics"]))[sample("lease_reclaim_total")] == 4


async def test_labels_and_gauges_that_come_and_go() -> None:
    measures = Measures()
    measures.set("consumer_lag", 7, "a44.events.v1", "0")
    measures.set("consumer_lag", 9, "a44.events.v1", "1")
    async with exported(measures, 0) as told:
        assert (await scrape(told["metrics"]))[sample("consumer_lag", topic="a44.events.v1", partition="1")] == 9
        measures.forget("consumer_lag", "a44.events.v1", "1")
        seen = await scrape(told["metrics"])
    assert seen[sample("consumer_lag", topic="a44.events.v1", partition="0")] == 7
    assert sample("consumer_lag", topic="a44.events.v1", partition="1") not in seen


async def test_plain_counters_begin_at_zero_and_gauges_are_absent_until_they_are_known() -> None:
    async with exported(Measures(), 0) as told:
        seen = await scrape(told["metrics"])
    plain = [name for name, one in MEASURES.items() if one.kind is Kind.COUNTER and not one.labels]
    assert {seen[sample(name)] for name in plain} == {0}
    assert not [name for name, _ in seen if name in MEASURES and name not in (*plain, "build_info")]


async def test_the_process_tells_its_version_memory_and_start() -> None:
    async with exported(Measures(), 0) as told:
        seen = await scrape(told["metrics"])
    names = {name for name, _ in seen}
    assert {"process_resident_memory_bytes", "process_start_time_seconds", "process_open_fds"} <= names
    assert [value for (name, _), value in seen.items() if name == "build_info"] == [1]


async def test_without_a_port_there_is_neither_thread_nor_address() -> None:
    before = threading.active_count()
    async with exported(Measures(), None) as told:
        assert told == {}
        assert threading.active_count() == before


async def test_only_this_machine_can_read_and_the_port_is_free_afterwards() -> None:
    async with exported(Measures(), 0) as told:
        address = str(told["metrics"])
    assert address.startswith("http://127.0.0.1:")
    port = int(address.rpartition(":")[2].removesuffix("/metrics"))
    async with exported(Measures(), port) as again:
        assert again["metrics"] == address


async def test_a_port_in_use_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Refused, match=rf"metrics_port is {port}.*0 for any free one") as refused:
            async with exported(Measures(), port):
                pass
    assert refused.value.code == "E_CONFIG"


@pytest.mark.parametrize("text", ["65536", "-1", "many"])
def test_a_port_that_is_none_is_a_clear_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A44_METRICS_PORT", text)
    with pytest.raises(Refused, match=r"A44_METRICS_PORT is .*; expected a whole number from 0 to 65535") as refused:
        load()
    assert refused.value.code == "E_CONFIG"
    assert run(["config"]) == 2


@pytest.mark.parametrize(
    ("name", "labels"), [("lease_reclaims", ()), ("lease_reclaim_total", ("x",)), ("role_up", ("gateway",))]
)
def test_what_is_not_in_the_vocabulary_is_refused_when_it_is_first_counted(name: str, labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=name):
        Measures().count(name, 1, *labels)


def test_a_measure_is_added_up_and_read_back() -> None:
    measures = Measures()
    assert measures.value("role_up", "relay") == 0
    measures.set("role_up", 1, "relay")
    measures.set("role_up", 0, "relay")
    measures.count("webhook_rejected_total", 2, "E_SIGNATURE")
    assert sorted(measures) == [("role_up", ("relay",), 0), ("webhook_rejected_total", ("E_SIGNATURE",), 2)]
    with pytest.raises(ValueError, match="role_up"):
        measures.set("role_up", 1)
