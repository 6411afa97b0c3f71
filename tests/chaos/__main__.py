"""`python -m tests.chaos`: faults on the real stack under load, then the proof that nothing was lost and nothing twice.

The last line on standard output is one JSON object. Exit status 1 where a check fails.
"""

import argparse
import asyncio
import json
import os
import secrets
import sys

from tests.chaos.display import Display
from tests.chaos.session import Wish, run
from tests.chaos.soak import RATE, soak

FULL = {"runs": 20_000, "faults": 65}
QUICK = {"runs": 1_500, "faults": 14}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--quick", action="store_true", help="each kind of fault once, in about three minutes")
    parser.add_argument("--kafka", choices=("embedded", "apache"), default=os.environ.get("KAFKA") or "embedded")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--runs", type=int)
    parser.add_argument("--faults", type=int)
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="no kills: count false alarms under load instead")
    parser.add_argument("--lease", type=float, help="A44_LEASE_SECONDS of the executors")
    given = parser.parse_args()
    size = QUICK if given.quick else FULL
    wish = Wish(
        kafka=given.kafka,
        seed=given.seed,
        runs=given.runs or (int(given.soak * RATE) + 1 if given.soak else size["runs"]),
        faults=given.faults or size["faults"],
        lease=given.lease or (30.0 if given.soak else 5.0),
    )
    display = Display()
    what = f"{given.soak:.0f} s without a kill" if given.soak else f"{wish.runs} orders, {wish.faults} faults"
    display.note(f"seed {wish.seed}: {what}, broker {wish.kafka}")
    try:
        report = asyncio.run(soak(wish, given.soak, display) if given.soak else run(wish, display))
    finally:
        display.close()
    sys.stdout.write(json.dumps(report) + "\n")
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
