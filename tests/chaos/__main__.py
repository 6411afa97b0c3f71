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

FULL = {"runs": 20_000, "faults": 65}
QUICK = {"runs": 1_500, "faults": 13}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--quick", action="store_true", help="each kind of fault once, in about three minutes")
    parser.add_argument("--kafka", choices=("embedded", "apache"), default=os.environ.get("KAFKA") or "embedded")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--runs", type=int)
    parser.add_argument("--faults", type=int)
    parser.add_argument("--lease", type=float, default=5.0, help="A44_LEASE_SECONDS of the executors")
    given = parser.parse_args()
    size = QUICK if given.quick else FULL
    wish = Wish(
        kafka=given.kafka,
        seed=given.seed,
        runs=given.runs or size["runs"],
        faults=given.faults or size["faults"],
        lease=given.lease,
    )
    display = Display()
    display.note(f"seed {wish.seed}: {wish.runs} orders, {wish.faults} faults, broker {wish.kafka}")
    try:
        report = asyncio.run(run(wish, display))
    finally:
        display.close()
    sys.stdout.write(json.dumps(report) + "\n")
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
