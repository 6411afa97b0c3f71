"""What lies between the topics that an installation declares and those that its broker has. Pure: two lists go in."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from topology.topics import TopicSpec


class Kind(StrEnum):
    """What a difference is about. `UNKNOWN` topics have the installation's prefix and nobody declares them."""

    MISSING = "missing"
    SETTING = "setting"
    PARTITIONS = "partitions"
    UNKNOWN = "unknown"


class Real(NamedTuple):
    """A topic as the broker tells of it; a broker that tells no settings leaves them out."""

    partitions: int
    settings: Mapping[str, str]


class Difference(NamedTuple):
    """`name` is the setting's. `way` says what becomes of it, `can_apply` whether that is a change to the broker."""

    topic: str
    kind: Kind
    declared: str | None
    real: str | None
    way: str
    can_apply: bool
    name: str | None = None


def differences(declared: Sequence[TopicSpec], real: Mapping[str, Real]) -> list[Difference]:
    """In the order of the declarations, unknown topics last."""
    found: list[Difference] = []
    for spec in declared:
        seen = real.get(spec.name)
        if seen is None:
            count = f"{spec.partitions} partitions"
            found.append(Difference(spec.name, Kind.MISSING, count, None, "it is made", can_apply=True))
        else:
            found += _partitions(spec, seen)
            found += _settings(spec, seen)
    known = {spec.name for spec in declared}
    way = "left as it is: nothing here reads or writes it"
    found += [
        Difference(name, Kind.UNKNOWN, None, f"{real[name].partitions} partitions", way, can_apply=False)
        for name in sorted(real.keys() - known)
    ]
    return found


def _partitions(spec: TopicSpec, seen: Real) -> list[Difference]:
    if seen.partitions == spec.partitions:
        return []
    grows = seen.partitions < spec.partitions
    way = (
        "it grows, once everything in it was read"
        if grows
        else f"Kafka takes no partitions away: declare {seen.partitions}, or begin with another prefix"
    )
    return [Difference(spec.name, Kind.PARTITIONS, str(spec.partitions), str(seen.partitions), way, can_apply=grows)]


def _settings(spec: TopicSpec, seen: Real) -> list[Difference]:
    return [
        Difference(spec.name, Kind.SETTING, value, seen.settings[name], "it is set", can_apply=True, name=name)
        for name, value in spec.settings().items()
        if name in seen.settings and seen.settings[name] != value
    ]
