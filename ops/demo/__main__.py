"""Runs the demo; exit status 0 only if every expectation held."""

import asyncio
import sys

from ops.demo.display import Display
from ops.demo.scenario import run
from schemas.errors import AutomationError


def main() -> int:
    display = Display()
    try:
        held = asyncio.run(run(display))
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
