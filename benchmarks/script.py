"""A measurement that is a program of its own: run to its end, its last line read as one JSON object."""

import asyncio
import json
import sys
from pathlib import Path

from benchmarks.figures import Figures

HERE = Path(__file__).resolve().parent
TAIL = 1_000


async def run_script(name: str, *arguments: str) -> Figures:
    """Raises RuntimeError with its last words when it fails."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / name),
        *arguments,
        cwd=HERE.parent,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{name} failed: {err.decode(errors='replace')[-TAIL:]}")
    figures: Figures = json.loads(out.decode().strip().splitlines()[-1])
    return figures
