"""A development session publishes every save, also one that came before anybody watched."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ops.dev.publisher import Publisher
from tests.support.waiting import until

FLOW = "name: hello\nversion: 1\ntrigger: { event: a.b }\nsteps:\n  - id: nap\n    uses: sleep\n    duration: 1s\n"


class Gateway:
    url = "http://127.0.0.1:1"

    def __init__(self) -> None:
        self.published: list[Mapping[str, str]] = []

    def publish(self, files: Mapping[str, str], *, dev: bool) -> dict[str, Any]:
        assert dev
        self.published.append(dict(files))
        item = {"change": "created", "kind": "workflow", "id": "wf_hello"}
        return {"published": [item], "webhooks": [], "warnings": []}


@pytest.mark.parametrize("is_there_before", [True, False])
async def test_a_save_before_the_watcher_looked_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_there_before: bool
) -> None:
    monkeypatch.setattr("ops.dev.publisher.LOOK_MILLIS", 100)
    flow, gateway, said = tmp_path / "hello.yaml", Gateway(), list[str]()
    if is_there_before:
        flow.write_text(FLOW)
    publisher = Publisher(gateway, [tmp_path], said.append)  # type: ignore[arg-type]
    await publisher.publish()
    before = len(gateway.published)
    flow.write_text(FLOW.replace("1s", "2s"))
    stop = asyncio.Event()
    watching = asyncio.create_task(publisher.watch(stop))
    await until(lambda: len(gateway.published) > before, "it is published")
    assert gateway.published[-1] == {"hello.yaml": FLOW.replace("1s", "2s")}
    told = len(said)
    flow.with_suffix(".txt").write_text("nothing of ours")
    flow.with_name("other.yaml").write_text(FLOW.replace("hello", "other"))
    await until(lambda: len(gateway.published) > before + 1, "the next save is published too")
    stop.set()
    await asyncio.wait_for(watching, 30)
    assert len(gateway.published) == before + 2
    assert not [line for line in said[told:] if "unchanged" in line and "force" in line]
