"""The machine that asks: versions of Python, of the packages and of the step hosts' SDK, and room on the disks."""

import asyncio
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from ops.doctor.findings import FAILED, OK, WARNING, Finding

MB = 1_000_000
_DISTRIBUTION = "anthares44-automation-service"
_PYTHONS = ((3, 11), (3, 14))
_PINNED = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^;\s]+)\s*(?:;\s*(.*))?")
_ASK_HOST = "import sys, anthares44.automation as sdk; print(sdk.__version__, *sys.version_info[:2])"
_HOST_SECONDS = 10.0


def check_versions() -> Finding:
    """The interpreter and the packages beside it, against what this version was tested with."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    if not _PYTHONS[0] <= sys.version_info[:2] < _PYTHONS[1]:
        return Finding(
            "versions", FAILED, f"Python {python}", "use Python 3.11, 3.12 or 3.13: make setup PYTHON=python3.13"
        )
    try:
        own, wrong = version(_DISTRIBUTION), list(_other_versions(requires(_DISTRIBUTION) or []))
    except PackageNotFoundError:
        way_out = "set the clone up with make setup, or install the package"
        return Finding("versions", WARNING, f"Python {python}; a44 runs from files that are not installed", way_out)
    if wrong:
        way_out = "set up anew from the lock (make setup): other versions were never tested together"
        return Finding("versions", WARNING, f"a44 {own} with other packages: {', '.join(wrong)}", way_out)
    return Finding("versions", OK, f"a44 {own}, Python {python}, packages as locked")


def _other_versions(pinned: Sequence[str]) -> Iterator[str]:
    for requirement in pinned:
        found = _PINNED.fullmatch(requirement.strip())
        if found is None or (found[3] and sys.platform == "win32"):
            continue
        try:
            here = version(found[1])
        except PackageNotFoundError:
            here = "none"
        if here != found[2]:
            yield f"{found[1]} {here} for {found[2]}"


async def check_step_python(python: str) -> Finding:
    """The interpreter that would run steps: it must have this version's SDK."""
    way_out = f"install anthares44-automation into it ({python} -m pip install ./sdk), or set A44_PYTHON to another"
    expected = version("anthares44-automation")
    try:
        process = await asyncio.create_subprocess_exec(
            python, "-c", _ASK_HOST, stdin=asyncio.subprocess.DEVNULL, stdout=-1, stderr=-1
        )
    except OSError as exc:
        return Finding("step python", FAILED, f"{python} cannot be run: {exc.strerror}", way_out)
    try:
        out, err = await asyncio.wait_for(process.communicate(), _HOST_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        return Finding("step python", FAILED, f"{python} said nothing for {_HOST_SECONDS:g} s", way_out)
    if process.returncode != 0:
        last = err.decode(errors="replace").strip().splitlines()[-1:]
        return Finding("step python", FAILED, f"{python}: {''.join(last) or process.returncode}", way_out)
    sdk, *numbers = out.decode().split()
    if sdk != expected:
        return Finding("step python", FAILED, f"{python} has the SDK {sdk}, this is {expected}", way_out)
    return Finding("step python", OK, f"Python {'.'.join(numbers)} with the SDK {sdk}")


def check_disks(data_directory: str | None, *, least: int, good: int) -> Sequence[Finding]:
    """Where bundles are unpacked, and where the database's files are when they are on this machine. Bytes."""
    return [_disk("temporary files", Path(tempfile.gettempdir()), least, good)] + (
        [_disk("database", Path(data_directory), least, good)]
        if data_directory and Path(data_directory).is_dir()
        else []
    )


def _disk(what: str, place: Path, least: int, good: int) -> Finding:
    check = f"disk of {what}"
    try:
        room = shutil.disk_usage(place)
    except OSError as exc:
        return Finding(check, WARNING, f"{place}: {exc.strerror}", "look at it by hand, with df")
    seen = f"{room.free / MB:,.0f} MB free of {room.total / MB:,.0f}, at {place}"
    if room.free >= good:
        return Finding(check, OK, seen)
    way_out = f"make room, or move it to a larger disk: at least {good / MB:,.0f} MB should be free"
    return Finding(check, WARNING if room.free >= least else FAILED, seen, way_out)
