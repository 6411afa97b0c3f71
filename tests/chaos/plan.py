"""Which faults happen and in which order: drawn from a seed, each kind at least once."""

import random
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """A fault; the value is its name in tables and in JSON."""

    EXECUTOR_KILLED = "executor killed"
    EXECUTOR_PAUSED = "executor paused past its lease"
    ALL_EXECUTORS_KILLED = "all executors killed, away for a while"
    HOST_KILLED = "step host killed"
    RELAY_KILLED = "relay killed"
    RELAY_PAUSED = "relay paused past its lease"
    GATEWAY_KILLED = "gateway killed"
    SCHEDULER_KILLED = "scheduler killed"
    INGEST_KILLED = "ingest killed"
    INGEST_PAUSED = "ingest paused"
    BROKER_KILLED = "broker killed, back with its data"
    BROKER_LOST = "broker lost with its data"
    POSTGRES_STOPPED = "postgres stopped at once"
    REBALANCE = "a third ingest joins and leaves"


WEIGHTS = {
    Kind.EXECUTOR_KILLED: 6,
    Kind.EXECUTOR_PAUSED: 2,
    Kind.ALL_EXECUTORS_KILLED: 2,
    Kind.HOST_KILLED: 5,
    Kind.RELAY_KILLED: 3,
    Kind.RELAY_PAUSED: 1,
    Kind.GATEWAY_KILLED: 3,
    Kind.SCHEDULER_KILLED: 3,
    Kind.INGEST_KILLED: 3,
    Kind.INGEST_PAUSED: 1,
    Kind.BROKER_KILLED: 2,
    Kind.BROKER_LOST: 2,
    Kind.POSTGRES_STOPPED: 4,
    Kind.REBALANCE: 2,
}


@dataclass(frozen=True, slots=True)
class Planned:
    """`chance` in [0, 1) decides what the kind leaves open: which process, how long."""

    kind: Kind
    chance: float
    rest: float


def kinds_for(broker: str) -> list[Kind]:
    """The embedded broker keeps nothing when it ends: it is only ever lost."""
    return [kind for kind in Kind if broker == "apache" or kind is not Kind.BROKER_KILLED]


def plan(seed: int, faults: int, kinds: list[Kind]) -> list[Planned]:
    rng = random.Random(seed)
    chosen = [*kinds, *rng.choices(kinds, [WEIGHTS[kind] for kind in kinds], k=max(0, faults - len(kinds)))][:faults]
    rng.shuffle(chosen)
    return [Planned(kind, rng.random(), rng.uniform(0.3, 1.5)) for kind in chosen]
