"""One simulation as drawn from its seed: what is sent, how long things take, and what goes wrong when."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.simulation.bodies import Act, Script
from tests.simulation.memory.network import Weather

FAULTS_FROM, CALM_AT = 0.5, 16.0
MOST_FAULTS = 10
FAULTS = {
    "crash": 30,
    "pause": 14,
    "stop": 8,
    "rebalance": 8,
    "restart_database": 8,
    "break_connection": 14,
    "jump_clock": 5,
    "slow_commits": 10,
    "bumpy_network": 8,
    "long_transaction": 8,
    "broker_away": 5,
    "broker_lost": 4,
    "topic_made_again": 4,
    "record_lost": 5,
    "flaky_broker": 6,
    "repeated_delivery": 8,
    "storage_away": 14,
    "host_lost": 8,
    "liveness_lost": 5,
    "cancel": 10,
}


@dataclass(frozen=True, slots=True)
class Sending:
    """One event. `copies` are sent at once; `kind` is a published event, a manual run or a record straight to Kafka.
    Data that is `large` lies in storage; a `loose` event makes no run that keeps an order, and an
    `urgent` one is soon too old.
    """

    number: int
    at: float
    kind: str
    lane: str
    copies: int
    is_large: bool = False
    is_loose: bool = False
    is_urgent: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    at: float
    kind: str
    seconds: float


@dataclass(slots=True)
class Scenario:
    seed: int
    partitions: int
    lease: float
    relay_lease: float
    slots: int
    limits: dict[str, int]
    max_attempts: int
    weather: Weather
    lost_wakes: float
    scripts: list[Script] = field(default_factory=list)
    sendings: list[Sending] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def draw(seed: int, faults: Sequence[str] = ()) -> Scenario:
    """Everything from the seed; with `faults` ten of these kinds, and no others."""
    dice = random.Random(seed)
    made = Scenario(
        seed=seed,
        partitions=dice.randint(1, 4),
        lease=dice.uniform(3.0, 6.0),
        relay_lease=dice.uniform(2.0, 6.0),
        slots=dice.choice([1, 3, 10, 50]),
        limits={"ordered": dice.randint(1, 5), "loose": dice.randint(1, 4)},
        max_attempts=dice.choice([3, 5, 5]),
        weather=Weather(slow=dice.choice([0.0, 0.01, 0.05]), bumpy=dice.choice([0.0, 0.01, 0.05])),
        lost_wakes=dice.choice([0.0, 0.1, 0.5]),
    )
    urgency = random.Random(seed ^ 0xA9E)
    lanes = [f"lane-{n}" for n in range(dice.randint(1, 3))]
    for number in range(dice.randint(4, 14)):
        made.scripts.append(_script(dice))
        kind = dice.choices(["event", "manual", "direct"], [6, 2, 2])[0]
        copies = dice.choices([1, 2, 3], [7, 2, 1])[0]
        at, lane = dice.uniform(0.1, 10.0), dice.choice(lanes)
        is_large, is_loose = (dice.random() < 0.3, dice.random() < 0.4) if kind != "manual" else (False, False)
        is_urgent = is_loose and urgency.random() < 0.5
        made.sendings.append(Sending(number, at, kind, lane, copies, is_large, is_loose, is_urgent))
    kinds = list(faults or FAULTS)
    weights = [FAULTS[kind] for kind in kinds]
    for _ in range(MOST_FAULTS if faults else dice.randint(1, MOST_FAULTS)):
        kind = dice.choices(kinds, weights)[0]
        at = dice.uniform(FAULTS_FROM, CALM_AT - 1)
        made.faults.append(Fault(at, kind, min(dice.choice([0.3, 1.0, 3.0, 9.0]), CALM_AT - at)))
    made.sendings.sort(key=lambda one: one.at)
    made.faults.sort(key=lambda one: one.at)
    return made


def _script(dice: random.Random) -> Script:
    branches = dice.choices([1, 2, 3], [6, 3, 1])[0]
    return [[_act(dice, f"{chr(97 + branch)}{n}") for n in range(dice.randint(1, 3))] for branch in range(branches)]


def _act(dice: random.Random, name: str) -> Act:
    if dice.random() < 0.2:
        return Act(name, dice.choice([0.05, 1.0, 4.0]), is_sleep=True)
    seconds = dice.choice([0.001, 0.05, 0.5, 3.0])
    fails = dice.choices([0, 1, 2], [8, 1, 1])[0]
    return Act(name, seconds, fails=fails, is_hopeless=dice.random() < 0.05)
