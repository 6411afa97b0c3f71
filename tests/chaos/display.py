"""What a person sees meanwhile: bars on a terminal, plain lines elsewhere; the table at the end. All on stderr."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from ops.demo.display import Display
from tests.chaos.checks import Violation
from tests.chaos.recovery import Recovery

SHOWN = 20

__all__ = ["Display", "show_recoveries", "show_violations"]


def show_recoveries(recoveries: Mapping[str, Recovery]) -> None:
    table = Table(
        "fault",
        "times",
        "target away",
        "things stopped",
        "p50",
        "max",
        title="recovery after each kind of fault, in seconds",
    )
    for kind, one in recoveries.items():
        table.add_row(
            kind, str(one.faults), _seconds(one.away), str(len(one.times)), _seconds(one.p50), _seconds(one.most)
        )
    Console(stderr=True).print(table)


def show_violations(violations: Sequence[Violation]) -> None:
    console = Console(stderr=True, highlight=False)
    for one in violations[:SHOWN]:
        console.print(f"VIOLATION {one.rule}: {one.seen}", markup=False, soft_wrap=True)
    if len(violations) > SHOWN:
        console.print(f"... and {len(violations) - SHOWN} more")
    if not violations:
        console.print("no violation")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
