"""The command line against the real gateway on a real Postgres: each decision of the doors as a person sees it."""

import hashlib
import hmac
import re
import time
from pathlib import Path

import pytest

from tests.acceptance.cli.installation import PROJECT, installation

FLOW = """\
name: invoice-settle
version: 1
trigger: { webhook: { id: trg_erp_sync } }
steps:
  - { id: pause, uses: sleep, duration: 1h }
"""
KEY = ("--idempotency-key", "erp:ord_991:shipped:v1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "payload.json").write_bytes(b'{ "orderId": "ord_991",\n "amount": 1.0 }')
    (tmp_path / "other.json").write_bytes(b'{"orderId": "ord_992"}')
    return tmp_path


async def test_the_doors_decide_and_the_command_line_shows_it(database: str, folder: Path) -> None:
    async with installation({"A44_POSTGRES_DSN": database}, folder, "gateway") as a44:
        whoami = (await a44("auth", "whoami", "--json")).document
        assert (whoami["project_id"], whoami["scopes"]) == (PROJECT, ["automation:read", "automation:write"])

        published = await a44("automation", "publish", "flow.yaml")
        assert published.code == 0, published.err
        secret = re.search(r"secret ([0-9a-f]{64})", published.out)
        assert secret is not None
        again = await a44("automation", "publish", "flow.yaml")
        assert "unchanged" in again.out
        assert "secret" not in again.out

        send = ("automation", "webhook", "send", "--trigger", "trg_erp_sync")
        sent = await a44(*send, "--file", "payload.json", *KEY, "--repeat", "2")
        first, second = sent.out.splitlines()
        run_id = first.split()[2]
        assert re.fullmatch(r"1/2  202 run_[0-9A-Z]{26}   created", first)
        assert re.fullmatch(rf"2/2  200 {run_id}   deduplicated \(key age: \S+\)", second)

        (folder / "events.ndjson").write_text('{"type":"a.b","data":1.0,"id":"e1"}\n{"type":"a.b","data":2}\n')
        events = ("automation", "events", "send", "--file", "events.ndjson")
        assert re.fullmatch(r"(./2  202 evt_[0-9A-Z]{26}   created\n){2}", (await a44(*events)).out)
        assert [line.split()[3] for line in (await a44(*events)).out.splitlines()] == ["deduplicated"] * 2

        other = await a44(*send, "--file", "other.json", *KEY)
        assert (other.code, other.out.split()[1:3]) == (3, ["422", "E_IDEMPOTENCY_CONFLICT"])
        wrong = await a44(*send, "--file", "payload.json", "--signature", "00" * 32)
        assert (wrong.code, wrong.out.split()[1:3]) == (3, ["401", "E_SIGNATURE"])

        old = str(int(time.time()) - 600)
        body = (folder / "payload.json").read_bytes()
        signature = hmac.new(secret[1].encode(), old.encode() + b"." + body, hashlib.sha256).hexdigest()
        late = await a44(*send, "--file", "payload.json", "--timestamp", old, "--signature", signature)
        assert late.code == 3
        assert late.out.split()[1:3] == ["408", "E_TIMESTAMP_SKEW"]

        shown = (await a44("automation", "show", run_id, "--json")).document
        assert shown["state"] == "accepted"


async def test_a_run_by_hand_is_made_found_again_listed_and_cancelled(database: str, folder: Path) -> None:
    async with installation({"A44_POSTGRES_DSN": database}, folder, "gateway") as a44:
        assert (await a44("automation", "publish", "flow.yaml")).code == 0
        run = ("automation", "run", "wf_invoice_settle", "--input", '{"invoiceId":"inv_8812"}')

        refused = await a44(*run)
        assert refused.code == 3
        assert refused.err.startswith("E_IDEMPOTENCY_KEY_REQUIRED")

        created = await a44(*run, "--idempotency-key", "manual-inv_8812")
        run_id, status = created.out.split()
        assert status == "created"
        repeated = await a44(*run, "--idempotency-key", "manual-inv_8812", "--json")
        assert (repeated.document["run_id"], repeated.document["status"]) == (run_id, "deduplicated")
        conflict = await a44(*run[:4], '{"invoiceId":"inv_1"}', "--idempotency-key", "manual-inv_8812")
        assert conflict.code == 3
        assert conflict.err.startswith("E_IDEMPOTENCY_CONFLICT")

        waited = await a44(*run, "--idempotency-key", "manual-inv_8812", "--wait", "0.5")
        assert waited.code == 1
        assert "--follow" in waited.err

        listed = await a44("automation", "runs", "--since", "1h", "--workflow", "wf_invoice_settle")
        assert listed.out.splitlines()[0] == "1 run"
        assert run_id in listed.out
        unknown = await a44("automation", "runs", "--state", "lost-in-space")
        assert unknown.code == 3
        assert unknown.err.startswith("E_INVALID_PARAMETER")

        resent = await a44(
            "automation", "events", "resend", run_id, "--idempotency-key", "manual-inv_8812-again", "--json"
        )
        assert (resent.code, resent.document["status"]) == (0, "created"), resent.err
        other = (await a44("automation", "show", resent.document["run_id"], "--json")).document
        assert (other["input"], other["run_id"] == run_id) == ({"invoiceId": "inv_8812"}, False)

        assert (await a44("automation", "logs", run_id)).code == 0
        assert (await a44("automation", "show", "run_none")).code == 4
        assert (await a44("automation", "cancel", run_id)).out == f"{run_id}  cancelling\n"


async def test_a_broken_file_is_refused_with_each_place(database: str, folder: Path) -> None:
    async with installation({"A44_POSTGRES_DSN": database}, folder, "gateway") as a44:
        untimed = "".join(f'  - {{ id: {name}, uses: sql/execute, query: "select 1" }}\n' for name in ("pay", "note"))
        (folder / "flow.yaml").write_text(FLOW + untimed)
        refused = await a44("automation", "publish", "flow.yaml")
        assert refused.code == 3
        assert "flow.yaml:6:" in refused.err
        assert "[E_STEP_TIMEOUT_MISSING]" in refused.err
        assert "flow.yaml:7:" in refused.err


async def test_case_A16_a_rotation_as_the_guide_prints_it_leaves_both_secrets_in_force(
    database: str, folder: Path
) -> None:
    async with installation({"A44_POSTGRES_DSN": database}, folder, "gateway") as a44:
        published = await a44("automation", "publish", "flow.yaml")
        old = re.search(r"secret ([0-9a-f]{64})", published.out)
        assert old is not None
        rotated = await a44("automation", "webhook", "rotate", "trg_erp_sync")
        assert rotated.code == 0, rotated.err
        assert re.fullmatch(r"[0-9a-f]{64}\n", rotated.out)
        assert "accepted until" in rotated.err

        body, at = (folder / "payload.json").read_bytes(), str(int(time.time()))
        for secret in (old[1], rotated.out.strip(), "00" * 32):
            signature = hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
            send = ("automation", "webhook", "send", "--trigger", "trg_erp_sync", "--file", "payload.json")
            sent = await a44(*send, "--timestamp", at, "--signature", signature, "--idempotency-key", secret)
            assert sent.out.split()[1] == ("401" if secret == "00" * 32 else "202")

        again = await a44("automation", "webhook", "rotate", "trg_erp_sync")
        assert (again.code, again.err.split()[0].strip(":")) == (3, "E_ROTATION_UNDERWAY")
        listed = (await a44("automation", "triggers", "--json")).document
        assert [one["number"] for one in listed[0]["secrets"]] == [2, 1]
