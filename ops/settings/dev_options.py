"""What `a44 dev` was asked for; the development stack reads it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DevOptions:
    """`paths` are watched and published. A port of 0 means any free one; `persist` keeps data between starts."""

    paths: tuple[Path, ...] = (Path(),)
    persist: Path | None = None
    port: int = 0
    postgres_port: int = 0
    kafka_port: int = 0
