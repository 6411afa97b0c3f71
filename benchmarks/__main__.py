"""`make bench`: every figure, beside the bare path of the same minutes; the last line is one JSON object.

`--quick` shows the same figures in about a minute, from one round of smaller loads. `--only` takes the names of
`rounds.py`. Progress goes to stderr. Exit status 1: something could not be measured, and the object says what.
"""

import argparse
import asyncio
import json
import sys
import time
from datetime import UTC, datetime

from rich.console import Console

from benchmarks.figures import Figures, Scale, put_together, ranges, with_shares
from benchmarks.page import write
from benchmarks.peers.measure_peers import WAYS
from benchmarks.report import show
from benchmarks.rounds import FAR_BEHIND, ON_A_STACK, Seen, measure_all

WIDTH = 130  # where no terminal tells its own


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of smaller loads, in about a minute")
    parser.add_argument("--rounds", type=int, default=0, help="how often each figure is measured (3, quick: 1)")
    parser.add_argument(
        "--divide", type=int, default=1, help="loads that are as many times smaller, to see that all works"
    )
    parser.add_argument("--only", nargs="+", choices=[*ON_A_STACK], help="not everything")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/performance.md")
    return parser.parse_args()


def _names(given: argparse.Namespace) -> list[str]:
    if given.only:
        return list(given.only)
    left_out = set(WAYS) if given.quick else FAR_BEHIND
    return [name for name in ON_A_STACK if name not in left_out]


def _result(seen: Seen) -> Figures:
    rounds = [with_shares(one) for one in seen.rounds]
    told = {
        "ranges": ranges(rounds),
        "machine": seen.machine,
        "measured_at": datetime.now(UTC).isoformat("T", "seconds"),
    }
    failures = {"not_measured": seen.failures} if seen.failures else {}
    return put_together(rounds) | told | failures


async def main(given: argparse.Namespace) -> int:
    progress, begun = Console(stderr=True, highlight=False), time.monotonic()

    def note(text: str) -> None:
        progress.print(f"{time.monotonic() - begun:5.0f} s  {text}", markup=False)

    scale = Scale(given.quick, given.divide)
    seen = await measure_all(given.rounds or scale.of(3, 1), _names(given), scale, note)
    result = _result(seen)
    note("measured")
    show(Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False), result)
    if given.write:
        write(result, f"make bench{'-quick' if given.quick else ''}")
    print(json.dumps(result))
    return 1 if seen.failures else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(_arguments())))
