"""What a measurement gives, how large it is, and what each figure should be.

Every `measure_*.py` has `measure(stack, scale)` or a command line of its own whose last line is one JSON object.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Figures = dict[str, Any]  # numbers by name; a figure by part is a dict of numbers


@dataclass(frozen=True, slots=True)
class Scale:
    """The whole form, or the quick one that shows the same figures in a minute. A divisor makes either smaller."""

    is_quick: bool = False
    divisor: int = 1

    def of(self, whole: int, quick: int) -> int:
        return max((quick if self.is_quick else whole) // self.divisor, 1)


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the table. `asks` is None for a figure that is shown and not judged."""

    name: str
    says: str
    unit: str
    better: Literal["more", "less"] = "more"
    asks: float | None = None

    def is_met(self, value: float) -> bool | None:
        if self.asks is None:
            return None
        return value >= self.asks if self.better == "more" else value <= self.asks


TARGETS = (
    Target("w3_kafka_per_s", "W3 from the events topic to run-events, saturated", "runs/s"),
    Target("floor_per_s", "the bare path, the same work in the same minutes", "runs/s"),
    Target("share_of_floor", "share of the bare path", "", asks=0.6),
    Target("w3_kafka_per_s_at_100", "W3 at the default limit of 100", "runs/s"),
    Target("share_at_100", "share of the figure at 2,000", "", asks=0.6),
    Target("w3_kafka_per_s_by_partition", "W3 by partition over 500 keys", "runs/s"),
    Target("cpu_s_per_1000", "CPU of all processes, through Kafka", "s/1,000", "less", 0.6),
    Target("floor_cpu_s_per_1000", "CPU of all processes, the bare path", "s/1,000", "less"),
    Target("share_of_floor_by_cpu", "share of the bare path, by CPU", ""),
    Target("w3_rest_per_s", "W3 through REST with wait=, saturated", "runs/s"),
    Target("rest_cpu_s_per_1000", "CPU of all processes, through REST", "s/1,000", "less", 1.2),
    Target("w3_alone_p50_ms", "W3 through REST, one at a time, p50", "ms", "less", 9.7),
    Target("w3_alone_p99_ms", "W3 through REST, one at a time, p99", "ms", "less", 15.0),
    Target("accepted_per_s", "signed webhooks answered 202, one gateway", "1/s", asks=2500),
    Target("accepted_p99_ms_at_70", "their p99 at 70 % of that", "ms", "less", 200.0),
    Target("ingested_per_s", "events on the topic made runs, no executor", "1/s", asks=10_000),
    Target("append_share", "raw append, share of a bare INSERT loop", "", asks=0.7),
    Target("grant_ratio", "grant p99, full database to empty one", "x", "less", 1.3),
    Target("executor_memory_mb", "executor, 10,000 sleeping and 1,000 running", "MB", "less", 400.0),
    Target("idle_statements_per_minute", "idle: Postgres statements", "1/min", "less", 300.0),
    Target("idle_core_percent", "idle: all roles together", "% of a core", "less", 2.0),
)
PEER_TARGETS = (
    Target("w3_kafka_to_restate", "W3 through Kafka, to Restate", "x", asks=8.0),
    Target("w3_rest_to_restate", "W3 through REST, to Restate", "x", asks=3.0),
    Target("w3_rest_to_dbos", "W3 through REST, to the fastest DBOS", "x", asks=12.0),
    Target("w3_rest_to_temporal", "W3 through REST, to the fastest Temporal", "x"),
    Target("alone_p50_to_restate", "one at a time, p50, to Restate", "x", "less", 1.0),
    Target("alone_p99_to_restate", "one at a time, p99, to Restate", "x", "less", 1.0),
)


def ranges(rounds: Sequence[Figures]) -> dict[str, list[float]]:
    """The least and the most of each number."""
    names = dict.fromkeys(name for one in rounds for name, value in one.items() if isinstance(value, int | float))
    seen = {name: [one[name] for one in rounds if name in one] for name in names}
    return {name: [rounded(min(values)), rounded(max(values))] for name, values in seen.items()}


def put_together(rounds: Sequence[Figures]) -> Figures:
    """The median of each number over the rounds that have it; by part for figures that are by part."""
    merged: Figures = {}
    for name in dict.fromkeys(name for one in rounds for name in one):
        seen = [one[name] for one in rounds if name in one]
        if all(isinstance(value, Mapping) for value in seen):
            merged[name] = put_together(seen)
        elif all(isinstance(value, int | float) for value in seen):
            merged[name] = rounded(statistics.median(seen))
        else:
            merged[name] = seen[-1]
    return merged


def rounded(value: float) -> float:
    """As many digits as a figure of a busy machine deserves."""
    size = abs(value)
    if size >= 100:  # noqa: PLR2004  hundreds need no fraction
        return round(value, 1)
    return round(value, 2 if size >= 1 else 4)


def tell(figures: Figures) -> None:
    """For one benchmark run by itself: a line a figure, and all of them as one JSON object."""
    exact = put_together([figures])
    for name, value in exact.items():
        print(f"{name:<32} {value}")
    print(json.dumps(exact))


def with_shares(figures: Figures) -> Figures:
    """What follows from two figures of one round: the share of the bare path, ratios to each peer at its fastest."""
    for engine in ("dbos", "temporal"):
        if seen := [value for name, value in figures.items() if name.startswith(engine) and name.endswith("_per_s")]:
            figures = figures | {f"{engine}_per_s": max(seen)}
    ratios = {
        "share_of_floor": ("w3_kafka_per_s", "floor_per_s"),
        "share_of_floor_by_cpu": ("floor_cpu_s_per_1000", "cpu_s_per_1000"),
        "w3_kafka_to_restate": ("w3_kafka_per_s", "restate_per_s"),
        "w3_rest_to_restate": ("w3_rest_per_s", "restate_per_s"),
        "w3_rest_to_dbos": ("w3_rest_per_s", "dbos_per_s"),
        "w3_rest_to_temporal": ("w3_rest_per_s", "temporal_per_s"),
        "alone_p50_to_restate": ("w3_alone_p50_ms", "restate_alone_p50_ms"),
        "alone_p99_to_restate": ("w3_alone_p99_ms", "restate_alone_p99_ms"),
    }
    found = {name: figures[a] / figures[b] for name, (a, b) in ratios.items() if a in figures and b in figures}
    return figures | found
