"""The demo's story: publish, send, produce, run by hand, wait for every end, check, report.

Everything goes through the public doors: the command, the hooks, the events topic, the REST surface.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ops.client import Client
from ops.demo import checks, report
from ops.demo.commands import Commands, Outcome
from ops.demo.display import Display
from ops.demo.expectations import Expectations
from ops.demo.partner import Partner, open_partner
from ops.embedded.stack import BrokerKind
from ops.local import LocalOptions, LocalStack
from processors.adapters.postgres.scripts import run_script
from schemas.errors import Refused

PROJECT = "demo"
EVENTS, KEYS = 200, 20
WEBHOOKS, REPEATED, FORGED = 50, 10, 3
FAIL_EVERY = 9
SKEW_SECONDS = 600
ENDS_WITHIN = 80.0
TRIGGER = "trg_invoice_hook"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LIVE = ("pending", "granted", "running", "sleeping", "retrying", "waiting", "compensating", "blocked", "accepted")


@dataclass
class Story:
    """What happened, for the checks and the report."""

    manual: Outcome
    manual_again: Outcome
    without_key: Outcome
    webhooks: list[Outcome] = field(default_factory=list)
    forged: list[Outcome] = field(default_factory=list)
    skewed: list[Outcome] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    partner_log: list[dict[str, Any]] = field(default_factory=list)


async def run(display: Display, kafka: BrokerKind = "embedded") -> bool:
    """Run the whole story; answers whether every expectation held."""
    if not EXAMPLES.is_dir():
        raise Refused("E_CONFIG", "the examples are not here: the demo runs from a clone of the project")
    async with open_partner(EXAMPLES / "partner" / "partner.py", FAIL_EVERY) as partner:
        environment = {
            f"A44_SECRET_{PROJECT.upper()}_SEC_PAYMENTS_URL": partner.url,
            "PARTNER_URL": partner.url,
            "A44_STEP_ENVIRONMENT": "PARTNER_URL",
        }
        options = LocalOptions(project=PROJECT, kafka=kafka, environment=environment)
        async with LocalStack(options, lambda part, state: display.note(f"{part} {state}")) as stack:
            return await _tell(display, stack, partner)


async def _tell(display: Display, stack: LocalStack, partner: Partner) -> bool:
    home = stack.folder / "home"
    home.mkdir(mode=0o700)
    commands = Commands(stack.url, stack.token, PROJECT, home)
    await _prepare_invoices(stack.project_dsn)
    published = await commands.automation("publish", str(EXAMPLES / "invoice-settle"), str(EXAMPLES / "tenant-onboard"))
    story = await _start_by_hand(commands)
    display.note("published, and the first run was started by hand; now webhooks and events")
    await asyncio.gather(
        _send_webhooks(display, commands, home, story),
        commands.python(
            str(EXAMPLES / "invoice-settle" / "produce.py"),
            *("--bootstrap", stack.kafka_bootstrap, "--project", PROJECT),
            *("--events", str(EVENTS), "--keys", str(KEYS)),
        ),
    )
    client = Client(stack.url, stack.token)
    story.runs = await _wait_for_ends(display, client, EVENTS + WEBHOOKS + 1)
    story.partner_log = await partner.log()
    documents = await _one_of_each(client, story)
    expectations = Expectations()
    checks.check_published(expectations, published)
    checks.check_doors(expectations, story, REPEATED)
    checks.check_runs(expectations, story, EVENTS + WEBHOOKS + 1)
    checks.check_order(expectations, story, KEYS, EVENTS // KEYS)
    await checks.check_invoices(expectations, stack.project_dsn)
    display.close()
    report.print_report(story, documents, expectations, display.seconds)
    return expectations.all_held


async def _prepare_invoices(dsn: str) -> None:
    """The project's own table, with the invoices that the events will be about."""
    schema = (EXAMPLES / "invoice-settle" / "schema.sql").read_text("utf-8")
    await run_script(dsn, schema + Path(__file__).with_name("invoices.sql").read_text("utf-8"))


async def _start_by_hand(commands: Commands) -> Story:
    started = ("run", "wf_tenant_onboard", "--input", json.dumps({"name": "Acme"}))
    key = ("--idempotency-key", "tenant:acme:onboard:v1")
    return Story(
        manual=await commands.automation(*started, *key),
        manual_again=await commands.automation(*started, *key),
        without_key=await commands.automation(*started),
    )


async def _send_webhooks(display: Display, commands: Commands, home: Path, story: Story) -> None:
    """Fifty signed ones, ten of them sent twice; three with a wrong signature, one from a clock that is off."""
    sent = 0

    def write(number: int) -> str:
        body = {"invoiceId": f"hook_{number:03}", "revision": 0, "amountCents": 1_000 + number}
        path = home / f"hook-{number:03}.json"
        path.write_text(json.dumps(body), "utf-8")
        return str(path)

    async def send(number: int, *more: str) -> Outcome:
        nonlocal sent
        words = ("webhook", "send", "--trigger", TRIGGER, "--file", write(number))
        outcome = await commands.automation(*words, "--idempotency-key", f"hook:{number:03}:v1", *more)
        sent += 1
        display.tick("webhooks sent", sent, WEBHOOKS + FORGED + 1)
        return outcome

    repeats = dict.fromkeys(range(REPEATED), ("--repeat", "2"))
    tasks = [send(number, *repeats.get(number, ())) for number in range(WEBHOOKS)]
    story.webhooks = list(await asyncio.gather(*tasks))
    story.forged = [await send(WEBHOOKS + n, "--signature", f"{n:064x}") for n in range(FORGED)]
    story.skewed = [await send(WEBHOOKS + FORGED, "--timestamp", str(int(time.time()) - SKEW_SECONDS))]


async def _wait_for_ends(display: Display, client: Client, expected: int) -> list[dict[str, Any]]:
    """Until every expected run has ended, or the time is over; answers all runs as they are then."""
    until = time.monotonic() + ENDS_WITHIN
    while True:
        runs = await asyncio.to_thread(_all_runs, client)
        ended = sum(run["state"] not in LIVE for run in runs)
        display.tick("runs ended", ended, expected)
        if ended >= expected or time.monotonic() > until:
            return runs
        await asyncio.sleep(0.4)


def _all_runs(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.runs(limit=1_000, filters={})["runs"]
    return found


async def _one_of_each(client: Client, story: Story) -> list[dict[str, Any]]:
    """The full document of one run of each workflow; of the invoices one that was retried, where there is one."""
    retried = {entry["key"].split(":")[0] for entry in story.partner_log if entry["status"] != checks.OK}
    chosen: dict[str, str] = {}
    for run in story.runs:
        if run["run_id"] in retried or run["workflow_id"] not in chosen:
            chosen[run["workflow_id"]] = run["run_id"]
    return [(await asyncio.to_thread(client.show, run_id)).document for run_id in chosen.values()]
