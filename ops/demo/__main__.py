"""Runs the demo; exit status 0 only if every expectation held. `--kafka apache` takes Apache Kafka as the broker."""

import argparse
import asyncio
import sys

from ops.demo.display import Display
from ops.demo.scenario import run
from schemas.errors import AutomationError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ops.demo", description=__doc__)
    parser.add_argument("--kafka", choices=("embedded", "apache"), default="embedded", help="which broker to start")
    options = parser.parse_args()
    display = Display()
    try:
        held = asyncio.run(run(display, options.kafka))
    except AutomationError as exc:
        display.close()
        sys.stderr.write(f"the demo could not be run: {exc}\n")
        return 1
    except KeyboardInterrupt:
        display.close()
        return 130
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
