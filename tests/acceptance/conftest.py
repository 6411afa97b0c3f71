"""One running stack for the tests that watch it or kill parts of it; each test makes its own keys.

A test that fails tells what every role of its stack logged last: the folder goes with the stack.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ops.local import LocalOptions, LocalStack
from ops.settings import ROLES
from processors.ports.crash_points import MARKED
from tests.support.crash_site import FLOWS, Site, mark

LOG_LINES = 80


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.when == "call":
        given: dict[str, Any] = getattr(item, "funcargs", {})
        stacks = {id(one): one for one in given.values() if isinstance(one, LocalStack)}
        for stack in stacks.values():
            for name, process in stack.processes.items():
                lines = process.log.read_text("utf-8", "replace").splitlines() if process.log.exists() else []
                report.sections.append((f"log of {name}", "\n".join(lines[-LOG_LINES:])))
    return report


def _folder() -> Path:
    """Steps run as an unprivileged account where the tests run as root: they may pass and write to the folder."""
    folder = Path(tempfile.mkdtemp(prefix="a44-crash-"))
    folder.chmod(0o777)
    (folder / "ledger").touch()
    (folder / "ledger").chmod(0o666)
    (folder / "flows").mkdir()
    (folder / "flows" / "flows.py").write_text(FLOWS.format(folder=str(folder)))
    return folder


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site() -> AsyncIterator[Site]:
    folder = _folder()
    options = LocalOptions(
        kafka="apache" if os.environ.get("A44_TEST_BROKER") == "apache" else "embedded",
        environment={
            "A44_LEASE_SECONDS": "3",
            "A44_METRICS_PORT": "0",
            "A44_CRASH_POINT": MARKED,
            "A44_STORAGE_URL": f"file://{folder}/bodies",
        },
        environment_of={role: {"A44_CRASH_MARK": str(mark(folder, role))} for role in ROLES},
    )
    async with LocalStack(options) as stack:
        site = Site(stack, folder)
        await site.publish()
        yield site
        await site.aclose()
    shutil.rmtree(folder)
