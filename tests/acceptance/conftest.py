"""One running stack for the tests that watch it or kill parts of it; each test makes its own keys."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from ops.local import LocalOptions, LocalStack
from ops.settings import ROLES
from processors.ports.crash_points import MARKED
from tests.support.crash_site import FLOWS, Site, mark


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
        environment={"A44_LEASE_SECONDS": "3", "A44_METRICS_PORT": "0", "A44_CRASH_POINT": MARKED},
        environment_of={role: {"A44_CRASH_MARK": str(mark(folder, role))} for role in ROLES},
    )
    async with LocalStack(options) as stack:
        site = Site(stack, folder)
        await site.publish()
        yield site
        await site.aclose()
    shutil.rmtree(folder)
