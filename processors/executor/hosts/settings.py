"""What can be set about step hosts. All times are in seconds."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

RESERVED_MB = 1024
MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HostSettings:
    """`interpreter` must have the SDK installed. `environment` names variables handed on beside the fixed few.

    `drop_root`: when this process is root, hosts run under `account` (uid, gid), or without one under
    an unprivileged account of the system. `redact_exempt` are field names that are never redacted.

    `memory_mb` is what a host may hold in memory; 0: no limit. What it may ask for is more by `RESERVED_MB`, for what
    is asked for and never touched (stacks of threads, buffers of libraries); past that a step gets a MemoryError.
    """

    interpreter: str = sys.executable
    environment: tuple[str, ...] = ()
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    drop_root: bool = True
    account: tuple[int, int] | None = None
    redact_exempt: tuple[str, ...] = ()
    spare: bool = True
    alone_hosts: int = 8
    apart_hosts: int = 8
    result_bytes: int = 16 * 1024 * 1024
    items: int = 10_000
    memory_mb: int = 1024

    hello_within: float = 30.0
    load_within: float = 30.0
    grace: float = 2.0
    silence: float = 5.0
    longest_kill_delay: float = 30.0
    idle: float = 60.0
    stop_within: float = 2.0
    check_every: float = 0.5
    look_every: float = 0.5
    backoff_base: float = 0.25
    backoff_cap: float = 30.0
    output_lines_per_second: int = 50
    output_line_bytes: int = 2_000

    @property
    def memory_bytes(self) -> int:
        return self.memory_mb * MB

    @property
    def asked_bytes(self) -> int:
        return (self.memory_mb + RESERVED_MB) * MB if self.memory_mb else 0
