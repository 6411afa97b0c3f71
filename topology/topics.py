"""Kafka topics: names with their version, partition counts and how long records stay.

Every record can be published again from Postgres, so retention is short where that is where truth lives.
"""

from dataclasses import dataclass

_HOUR = 3600 * 1000
_DAY = 24 * _HOUR

RETRY_DELAYS = {"10s": 10.0, "1m": 60.0, "10m": 600.0}


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a topic is made with. `retention_ms` in milliseconds, `max_record_bytes` in bytes."""

    name: str
    partitions: int
    retention_ms: int
    max_record_bytes: int = 1_048_588

    def settings(self) -> dict[str, str]:
        """The broker's settings of the topic, by their Kafka names."""
        return {
            "cleanup.policy": "delete",
            "retention.ms": str(self.retention_ms),
            "max.message.bytes": str(self.max_record_bytes),
        }


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one installation; `prefix` keeps several apart on one cluster."""

    prefix: str = "a44"

    @property
    def events(self) -> str:
        return f"{self.prefix}.events.v1"

    @property
    def commands(self) -> str:
        return f"{self.prefix}.commands.v1"

    @property
    def run_events(self) -> str:
        return f"{self.prefix}.run-events.v1"

    @property
    def dead_letters(self) -> str:
        return f"{self.prefix}.dead-letters.v1"

    def retries(self) -> dict[str, float]:
        """Retry topics and their delays in seconds."""
        return {f"{self.prefix}.retry.{name}.v1": seconds for name, seconds in RETRY_DELAYS.items()}

    def all(self) -> list[TopicSpec]:
        """Every topic. Events stay no longer than the window in which a repeated key is recognised."""
        return [
            TopicSpec(self.events, 8, _DAY),
            TopicSpec(self.commands, 8, _HOUR),
            TopicSpec(self.run_events, 8, 7 * _DAY),
            *(TopicSpec(name, 2, _DAY) for name in self.retries()),
            TopicSpec(self.dead_letters, 2, 30 * _DAY),
        ]
