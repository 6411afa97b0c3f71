"""`a44 automation events send --file` against the real door: batches, refusals in their places, nothing made twice."""

import asyncio
import json
from pathlib import Path

import pytest

from ops.cli.app import run
from tests.integration.gateway.conftest import PROJECT, Gateway

COUNT = 2_100


def lines() -> list[str]:
    told = [{"type": "a.b", "idempotency_key": f"k{number}", "data": {"n": number}} for number in range(COUNT)]
    told[7] |= {"type": ""}  # refused
    told[9] |= {"idempotency_key": "k8"}  # a conflict with the one before it
    return [json.dumps(event) for event in told]


async def test_a_file_is_taken_in_batches_and_sent_again_makes_nothing_twice(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("A44_URL", gateway.url)
    monkeypatch.setenv("A44_TOKEN", gateway.token)
    monkeypatch.setenv("A44_PROJECT", PROJECT)
    monkeypatch.setenv("A44_HOME", str(tmp_path))
    file = tmp_path / "events.ndjson"
    file.write_text("\n".join(lines()))

    async def sent() -> list[dict[str, object]]:
        capfd.readouterr()
        assert await asyncio.to_thread(run, ["automation", "events", "send", "--file", str(file), "--json"]) == 3
        return [json.loads(line) for line in capfd.readouterr().out.splitlines() if line[0] == "{"]  # no log lines

    *first, summed_up = await sent()
    assert [one["event"] for one in first] == list(range(1, COUNT + 1))
    assert (first[7]["code"], first[9]["code"]) == ("E_ENVELOPE_INVALID", "E_IDEMPOTENCY_CONFLICT")
    assert summed_up == {"events": COUNT, "created": COUNT - 2, "refused": 1, "conflict": 1}
    *_, again = await sent()
    assert again == {"events": COUNT, "deduplicated": COUNT - 2, "refused": 1, "conflict": 1}
    assert await gateway.rows("select count(*) as count from automation.outbox") == [{"count": COUNT - 2}]
