"""What is asked of the service: drawn from a seed, and what became of each asking."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Way = Literal["hand", "webhook", "event", "kafka"]
WAYS: dict[Way, int] = {"kafka": 70, "event": 10, "webhook": 10, "hand": 10}
WORKFLOWS = {"quick": 25, "slow": 20, "moody": 11, "fan": 11, "lane": 17, "nap": 13, "declined": 3}
LANES = 60


@dataclass(slots=True)
class Order:
    """`accepted` is the wall clock of the answer, or of the broker's word; ids are what the answer promised.

    `first_door` is the gateway that was asked first.
    """

    key: str
    workflow: str
    way: Way
    lane: str
    seconds: float
    event_id: str | None = None
    run_id: str | None = None
    partition: int | None = None
    accepted: float | None = None
    first_door: str = ""

    @property
    def data(self) -> dict[str, object]:
        return {"lane": self.lane, "seconds": self.seconds, "key": self.key}

    @property
    def expected_state(self) -> str:
        return "failed" if self.workflow == "declined" else "succeeded"


def draw(seed: int, count: int) -> Iterator[Order]:
    rng = random.Random(seed + 1)
    ways, workflows = list(WAYS), list(WORKFLOWS)
    for number in range(count):
        way = rng.choices(ways, list(WAYS.values()))[0]
        workflow = rng.choices(workflows, list(WORKFLOWS.values()))[0]
        order = Order(f"chaos:{seed}:{number}", workflow, way, f"l{rng.randrange(LANES)}", rng.uniform(1.0, 4.0))
        if way == "kafka":
            order.event_id = f"chaos-{seed}-{number}"
        yield order
