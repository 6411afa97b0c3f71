"""What the benchmark counts with: processor time by part, frames of the bare path, peers that are not there."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from benchmarks.bare_path.frames import LENGTH_BYTES, Frames
from benchmarks.figures import Scale
from benchmarks.peers import measure_peers
from benchmarks.processor_time import Meter, processor_seconds
from ops.local import LocalStack

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def frame(*messages: list[Any]) -> bytes:
    body = msgspec.msgpack.encode(messages)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_frames_are_whole_however_they_are_cut(size: int) -> None:
    heard: list[list[Any]] = []
    frames = Frames(heard.append, lambda: None)
    data = frame([1], [2, "one"]) + frame([3, "two", {"ok": True}, False])
    for begin in range(0, len(data), size):
        frames.data_received(data[begin : begin + size])
    assert heard == [[1], [2, "one"], [3, "two", {"ok": True}, False]]


async def test_what_is_sent_in_one_turn_of_the_loop_is_one_frame() -> None:
    written: list[bytes] = []

    class Transport(asyncio.Transport):
        def write(self, data: Any) -> None:
            written.append(bytes(data))

    frames = Frames(lambda _: None, lambda: None)
    frames.connection_made(Transport())
    frames.send(1)
    frames.send(2, "one")
    await asyncio.sleep(0)
    assert written == [frame([1], [2, "one"])]


@linux
async def test_a_part_has_the_time_of_all_below_it_the_dead_ones_too() -> None:
    before, meter = processor_seconds(os.getpid()), Meter({"all": os.getpid()})
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", burn)
    assert await child.wait() == 0
    assert processor_seconds(os.getpid()) - before >= 0.15  # counted in ticks
    assert meter.per_1000(100)["all"] >= 1.5


@linux
def test_cores_at_work_are_those_of_the_machine() -> None:
    meter = Meter({})
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    cores = meter.cores()
    assert cores["ours"] > 0
    assert sum(cores.values()) == pytest.approx(os.cpu_count())


async def test_a_peer_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measure_peers, "PYTHON", tmp_path / "python")
    nowhere = cast("LocalStack", None)
    assert [await measure_peers.measure(nowhere, Scale(), way) for way in measure_peers.WAYS] == [{}] * 5
