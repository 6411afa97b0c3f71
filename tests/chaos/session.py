"""One run of chaos: the stack, the load, the faults, the end of all runs, the checks."""

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.client import Client
from ops.embedded.stack import BrokerKind
from ops.local import LocalOptions, LocalStack
from ops.settings import ROLES
from tests.chaos import history
from tests.chaos.alarms import closings, false_alarms
from tests.chaos.announcements import Announcements
from tests.chaos.checks import Evidence, Violation, check
from tests.chaos.display import Display, show_recoveries, show_violations
from tests.chaos.doors import Doors
from tests.chaos.faults import Faults
from tests.chaos.ledger import Ledger
from tests.chaos.load import Load
from tests.chaos.looker import Looker
from tests.chaos.orders import draw
from tests.chaos.plan import kinds_for, plan
from tests.chaos.records import Records
from tests.chaos.recovery import Recoveries
from tests.chaos.supervisor import Supervisor
from tests.support.waiting import until
from topology.publication import collect

FLOWS = Path(__file__).with_name("flows")
END_SECONDS = 300.0
HEARD_SECONDS = 60.0
FAULT_SECONDS = 8.0
# What is still to be sent when the last fault is over goes out quickly.
LAST_RATE = 400.0


@dataclass(frozen=True, slots=True)
class Wish:
    kafka: BrokerKind
    seed: int
    runs: int
    faults: int
    lease: float


@dataclass(slots=True)
class Scene:
    """Everything that takes part; made by `opened`."""

    wish: Wish
    display: Display
    stack: LocalStack
    looker: Looker
    ledger: Ledger
    records: Records
    doors: Doors
    load: Load
    announcements: Announcements
    faults: Faults
    supervisor: Supervisor


@asynccontextmanager
async def opened(wish: Wish, display: Display) -> AsyncIterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="a44-chaos-") as name:
        efforts = _ledger_folder(Path(name))
        environment = {
            "A44_LEASE_SECONDS": str(wish.lease),
            "A44_STEP_ENVIRONMENT": "CHAOS_LEDGER",
            "CHAOS_LEDGER": str(efforts),
            "A44_METRICS_PORT": "0",
        }
        options = LocalOptions(kafka=wish.kafka, roles=(*ROLES, *ROLES), environment=environment)
        async with LocalStack(options, lambda part, state: display.note(f"{part} {state}")) as stack:
            scene = await _set(wish, display, stack, Ledger(efforts))
            try:
                yield scene
            finally:
                await scene.announcements.stop()
                scene.doors.close()
                await scene.looker.close()


def _ledger_folder(folder: Path) -> Path:
    """Step hosts run under an account of their own, and must get there and write."""
    efforts = folder / "ledger"
    efforts.mkdir()
    folder.chmod(0o711)
    efforts.chmod(0o777)
    return efforts


async def _set(wish: Wish, display: Display, stack: LocalStack, ledger: Ledger) -> Scene:
    client = Client(stack.url, stack.token)
    try:
        published = await asyncio.to_thread(client.publish, collect([FLOWS]))
    finally:
        client.close()
    secrets = {hook["path"]: hook["secret"] for hook in published["webhooks"]}
    urls = [str(one.told["url"]) for one in stack.processes.values() if one.role == "gateway"]
    looker, records = Looker(stack.log_dsn), Records(stack.kafka_bootstrap)
    doors = Doors(urls, stack.token, secrets)
    load = Load(list(draw(wish.seed, wish.runs)), LAST_RATE, doors, records, looker)
    announcements = Announcements(stack.kafka_bootstrap)
    announcements.start()
    supervisor = Supervisor(stack)
    faults = Faults(stack, ledger, looker, records, announcements, supervisor, wish.lease)
    return Scene(wish, display, stack, looker, ledger, records, doors, load, announcements, faults, supervisor)


async def run(wish: Wish, display: Display) -> dict[str, Any]:
    """The report as one object; `violations` is empty when everything held."""
    async with opened(wish, display) as scene:
        sending = asyncio.create_task(scene.load.run())
        watching = asyncio.create_task(_watch(scene))
        supervising = asyncio.create_task(scene.supervisor.run())
        try:
            await _strike(scene)
            display.note(f"the faults are over; the rest of {wish.runs} orders is sent")
            scene.load.rate = LAST_RATE
            await sending
            violations = await _wait_for_ends(scene)
        finally:
            sending.cancel()
            watching.cancel()
            supervising.cancel()
        return await _judge(scene, violations)


async def _strike(scene: Scene) -> None:
    planned = plan(scene.wish.seed, scene.wish.faults, kinds_for(scene.wish.kafka))
    begun = time.monotonic()
    for number, one in enumerate(planned):
        # The share of each fault: one half at once, so that there is work in flight, and one half while it lasts.
        usual = (time.monotonic() - begun) / number if number else FAULT_SECONDS
        half = (scene.wish.runs - scene.load.sent) / (2 * (len(planned) - number))
        scene.load.hurry(int(half))
        scene.load.rate = half / usual
        await asyncio.sleep(one.rest)  # not to wait for anything: faults come when they come
        scene.display.tick("faults", number, len(planned))
        fault = await scene.faults.do(one)
        scene.display.note(f"{fault.kind}: {fault.target}, {len(fault.keys)} steps in flight. {fault.remark}")
    scene.display.tick("faults", len(planned), len(planned))


async def _watch(scene: Scene) -> None:
    while True:
        scene.display.tick("orders sent", scene.load.sent, scene.wish.runs)
        scene.display.tick("runs ended", scene.load.ended, scene.wish.runs)
        await asyncio.sleep(0.5)


async def _wait_for_ends(scene: Scene) -> list[Violation]:
    """All runs have ended and all of it was announced, or the time for that is over: the checks say what is missing."""
    expected = sum(order.accepted is not None for order in scene.load.orders)

    async def all_ended() -> bool:
        scene.load.ended = await scene.looker.one("select count(*) from automation.runs_ended")
        scene.display.tick("runs ended", scene.load.ended, scene.wish.runs)
        return scene.load.ended >= expected

    try:
        await until(all_ended, "all runs end after the last order", END_SECONDS)
    except AssertionError as exc:
        return [Violation("ends_in_time", str(exc))]
    announced = await scene.looker.one("select count(*) from automation.outbox where topic = 'a44.run-events.v1'")
    with suppress(AssertionError):
        await until(lambda: len(scene.announcements.seen) >= announced, "all is heard", HEARD_SECONDS)
    return []


async def _judge(scene: Scene, violations: list[Violation]) -> dict[str, Any]:
    scene.display.note("reading what is on record")
    scene.ledger.read()
    told = await history.read(scene.looker)
    orders, heard = scene.load.orders, scene.announcements.seen
    violations += [Violation("work_goes_on", seen) for seen in scene.faults.problems]
    violations += [Violation("roles_stay", words) for words in scene.supervisor.ended]
    violations += check(Evidence(orders, told, scene.ledger, heard, scene.doors.refusals))
    processes = scene.stack.processes.values()
    alarms = false_alarms(closings(processes, "probe"), scene.faults.done)
    violations += [
        Violation("no_false_alarms", f"the session of {owner} was closed at {at}, and it lived") for at, owner in alarms
    ]
    recoveries = Recoveries(orders, told, scene.ledger, scene.announcements.times).by_kind(scene.faults.done)
    statuses = Counter(one.status for one in told.attempts if one.kind == "step")
    scene.display.close()
    show_recoveries(recoveries)
    show_violations(violations)
    return {
        "seed": scene.wish.seed,
        "kafka": scene.wish.kafka,
        "lease_seconds": scene.wish.lease,
        "seconds": round(scene.display.seconds, 1),
        "accepted": sum(order.accepted is not None for order in orders),
        "runs": len(told.runs),
        "ways": dict(Counter(order.way for order in orders)),
        "faults": len(scene.faults.done),
        "violations": dict(Counter(one.rule for one in violations)),
        "steps": dict(statuses),
        "effects": sum(any(one.applied for one in efforts) for efforts in scene.ledger.of_key.values()),
        "effects_repeated": sum(
            max(0, sum(one.applied is not None for one in efforts) - 1) for efforts in scene.ledger.of_key.values()
        ),
        "late_results": told.late,
        "asked_again": scene.doors.failures,
        "produced_again": scene.records.again,
        "announced": len(told.announced),
        "heard_more_than_once": sum(many - 1 for many in heard.values()),
        "sessions_closed": {how: len(closings(processes, how)) for how in ("probe", "lease")},
        "false_alarms": len(alarms),
        "recovery_seconds": {
            kind: {"faults": one.faults, "away": one.away, "stopped": len(one.times), "p50": one.p50, "max": one.most}
            for kind, one in recoveries.items()
        },
    }
