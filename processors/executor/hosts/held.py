"""A run as the executor's side of the hosts holds it: where it is, and which attempts run there."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from processors.ports.bodies import BodyStart


@dataclass(slots=True, eq=False)
class Attempt:
    """A running attempt; `token` is unique in its host's life.

    `allowed` is its timeout and our grace in seconds, `deadline` the monotonic time when they are over.
    """

    item: str
    number: int
    token: str
    allowed: float
    deadline: float


class RunHost(Protocol):
    """What a run asks of the host it is in."""

    @property
    def takes_attempts(self) -> bool:
        """Whether it is going on: nothing new starts in a host that was withdrawn."""

    def send(self, message: dict[str, Any]) -> None: ...

    def launch(self, launch: "Launch") -> None: ...

    def drop(self, run: "HeldRun") -> None: ...


@dataclass(slots=True, eq=False)
class HeldRun:
    """`start` and `early` (messages that wait until START is sent) are kept until the host has it.

    `unbegun` are attempts that were asked for and held back. `over`: nobody asks for the run any more.
    """

    run_id: str
    fence: int
    start: BodyStart | None
    host: RunHost | None = None
    over: bool = False
    attempts: dict[str, Attempt] = field(default_factory=dict)
    early: list[dict[str, Any]] = field(default_factory=list)
    unbegun: "dict[str, Launch]" = field(default_factory=dict)

    @property
    def name(self) -> tuple[str, int]:
        return self.run_id, self.fence


@dataclass(frozen=True, slots=True)
class Launch:
    """An attempt that is to start; `message` says so to the host."""

    run: HeldRun
    attempt: Attempt
    message: dict[str, Any]
