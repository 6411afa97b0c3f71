"""What a process counts about itself. Names are a closed vocabulary; whoever exports them reads `values`.

Touching a measure is one dictionary write. A role makes its own `Measures` where none is given to it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Measure:
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


MEASURES: Mapping[str, Measure] = {
    "build_info": Measure(Kind.GAUGE, "1, with what this process runs", ("version", "python")),
    "role_up": Measure(Kind.GAUGE, "1 once a role of this process said that it is ready, 0 before", ("role",)),
    "webhook_rejected_total": Measure(Kind.COUNTER, "webhooks that were refused, by the code of the answer", ("code",)),
    "webhook_verified_total": Measure(
        Kind.COUNTER,
        "webhooks whose signature fitted, by the age of the secret: newest, old (until 48 h after a rotation)",
        ("secret",),
    ),
    "door_answers_total": Measure(
        Kind.COUNTER, "what doors answered: created, deduplicated, conflict, filtered", ("outcome",)
    ),
    "connections_open": Measure(Kind.GAUGE, "connections that this gateway holds, within its bounds"),
    "connections_refused_total": Measure(
        Kind.COUNTER,
        "connections, and requests behind trusted proxies, past a bound of this gateway: process, address",
        ("bound",),
    ),
    "lease_reclaim_total": Measure(Kind.COUNTER, "runs that were taken from a lost owner and granted again"),
    "sessions_closed_total": Measure(
        Kind.COUNTER, "sessions of executors that were closed, by how their end was noticed", ("noticed_by",)
    ),
    "session_false_alarms_total": Measure(
        Kind.COUNTER, "sessions that were closed by the liveness probe although their process was there"
    ),
    "session_lost_total": Measure(Kind.COUNTER, "sessions that this executor lost or gave up"),
    "late_attempts_total": Measure(Kind.COUNTER, "results that came after their run had got another owner"),
    "dead_letter_write_failures_total": Measure(
        Kind.COUNTER, "dead letters of ingest that could not be written; their partitions wait"
    ),
    "consumer_restarts_total": Measure(
        Kind.COUNTER, "lives of a consumer that were ended because it lost its broker or stood still", ("topic",)
    ),
    "consumer_lag": Measure(
        Kind.GAUGE, "records that are in a partition read here and were not fetched yet", ("topic", "partition")
    ),
    "letters_redriven_total": Measure(
        Kind.COUNTER, "dead letters that the scheduler gave a new run, by order of a person"
    ),
    "dlq_depth": Measure(
        Kind.GAUGE,
        "dead letters of a queue that have not run again, 10,000 standing for more; those of no project have none",
        ("project", "queue"),
    ),
    "dlq_oldest_seconds": Measure(
        Kind.GAUGE, "how long ago the oldest of them was written; 0 where there is none", ("project", "queue")
    ),
    "run_crash_loops_total": Measure(Kind.COUNTER, "runs that were ended because they kept ending their worker"),
    "runs_claimed_total": Measure(Kind.COUNTER, "runs that this executor took"),
    "runs_ended_total": Measure(Kind.COUNTER, "runs that this executor ended, by the state at their end", ("state",)),
    "run_defects_total": Measure(Kind.COUNTER, "runs that were blocked because the service met a defect of its own"),
    "executor_commits_total": Measure(Kind.COUNTER, "transactions of this executor, of many runs each"),
    "timers_woken_total": Measure(Kind.COUNTER, "runs whose timer was due, and that the scheduler made ready"),
    "runs_granted_total": Measure(Kind.COUNTER, "ready runs that the scheduler gave a free slot"),
    "direct_records_total": Measure(
        Kind.COUNTER,
        "records straight on Kafka, by what they came to: created, deduplicated, conflict, filtered",
        ("outcome",),
    ),
    "events_taken_total": Measure(Kind.COUNTER, "events that ingest took from Kafka, repetitions included"),
    "events_unmatched_total": Measure(Kind.COUNTER, "events that no trigger asked for"),
    "events_filtered_total": Measure(
        Kind.COUNTER, "times a trigger's filter let an event or a webhook pass by, so that no run was made"
    ),
    "event_runs_total": Measure(Kind.COUNTER, "runs that events asked for, repetitions included"),
    "records_refused_total": Measure(
        Kind.COUNTER, "records of the events topic that became dead letters, by the code of the reason", ("code",)
    ),
    "records_postponed_total": Measure(
        Kind.COUNTER, "times a record was put off to a retry topic, by the code of what was away", ("code",)
    ),
    "partition_waits_total": Measure(
        Kind.COUNTER,
        "times a partition was left where it stands, as its next record needs what is away and must not be passed",
        ("code",),
    ),
    "partitions_ahead_days": Measure(
        Kind.GAUGE, "for how many days from now a table has a partition for every instant", ("table",)
    ),
    "partitions_dropped_total": Measure(
        Kind.COUNTER, "partitions that were dropped because they were over and wholly sent", ("table",)
    ),
    "stored_bodies_swept_total": Measure(
        Kind.COUNTER, "bodies in storage that were removed because no run refers to them"
    ),
    "oldest_snapshot_age_seconds": Measure(
        Kind.GAUGE, "how long ago the oldest open transaction began that keeps dead rows from being cleaned up"
    ),
    "outbox_horizon_age_seconds": Measure(
        Kind.GAUGE, "how long the oldest open writing transaction of our role has been open; rows behind it wait"
    ),
    "outbox_lag_rows": Measure(Kind.GAUGE, "about how many rows of the outbox wait to be published"),
    "outbox_oldest_unsent_seconds": Measure(Kind.GAUGE, "how long the first row that waits has been in the outbox"),
    "relay_published_total": Measure(Kind.COUNTER, "rows of the outbox that Kafka has acknowledged"),
    "relay_rewinds_total": Measure(Kind.COUNTER, "times the relay went back to publish again what was missing"),
    "relay_takeovers_total": Measure(Kind.COUNTER, "times this process became the owner of a shard of the outbox"),
    "relay_gaps_total": Measure(Kind.COUNTER, "gaps in the relay's numbers, each asked for once"),
    "host_deaths_total": Measure(Kind.COUNTER, "step hosts that ended unasked, or were ended, by why", ("cause",)),
    "host_memory_kills_total": Measure(Kind.COUNTER, "step hosts that were ended because they held too much memory"),
    "wakeups_total": Measure(
        Kind.COUNTER, "wake-ups by notification, and looks of the poll that found what nobody had told of", ("by",)
    ),
}


class Measures:
    """Values by name and label values, in the order of the measure's labels. A name or a number of labels that is not
    in `MEASURES` raises ValueError when it is first touched.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[str, tuple[str, ...]], float] = {}

    def count(self, name: str, amount: float = 1, *labels: str) -> None:
        """Add to a counter."""
        place = (name, labels)
        try:
            self._values[place] += amount
        except KeyError:
            self._values[_known(place, Kind.COUNTER)] = amount

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        place = (name, labels)
        self._values[place if place in self._values else _known(place, Kind.GAUGE)] = value

    def forget(self, name: str, *labels: str) -> None:
        """Take a gauge away whose subject is not there any more."""
        self._values.pop((name, labels), None)

    def value(self, name: str, *labels: str) -> float:
        """0 where it was never touched."""
        return self._values.get((name, labels), 0)

    def __iter__(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """Name, label values, value: a copy, so that another thread may read."""
        return iter([(name, labels, value) for (name, labels), value in list(self._values.items())])


def _known(place: tuple[str, tuple[str, ...]], kind: Kind) -> tuple[str, tuple[str, ...]]:
    name, labels = place
    measure = MEASURES.get(name)
    if measure is None or measure.kind is not kind or len(measure.labels) != len(labels):
        raise ValueError(f"{name!r} with labels {labels} is no {kind} of MEASURES, which has {measure}")
    return place
