"""Why a step host died: the label of `host_deaths_total`. One that was asked to end did not die."""

from enum import StrEnum


class Cause(StrEnum):
    """`EXIT` and `SIGNAL` came over it, by its own code or from outside; for all others we ended it."""

    EXIT = "exit"
    SIGNAL = "signal"
    START = "start"
    IMPORT = "import"
    PROTOCOL = "protocol"
    TIMEOUT = "timeout"
    BLOCKED = "blocked"
    SILENCE = "silence"
    MEMORY = "memory"
