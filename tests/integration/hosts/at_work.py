"""Step hosts where they belong: under an executor on the real log, with a scheduler that takes runs from the silent."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from processors.executor.hosts import CodeBundle, HostSettings, StepHosts
from processors.executor.hosts.starter import Bundles
from processors.ports.measures import Measures
from processors.ports.runs import NewRun
from tests.integration.executor.works import Working, Works
from tests.integration.hosts.scripted import quick

IMPORTS = "from anthares44.automation import workflow, step\nimport asyncio, os, signal, time\n"


class AtWork:
    """An executor whose bodies live in real hosts. All runs are of one workflow: `flow` declares it as `t`.

    `folder` is for what steps leave behind.
    """

    working: Working

    def __init__(self, works: Works, folder: Path) -> None:
        self.works = works
        self.folder = folder
        self.measures = Measures()

    async def begin(
        self, flow: str, *, lease: float = 30.0, settings: HostSettings | None = None, bundles: Bundles | None = None
    ) -> None:
        """`bundles` where the files of the flow are not to be had at once."""
        bundle = CodeBundle("sha256:t", {"flow.py": IMPORTS + flow}, "flow.py", "t", "1")

        async def bundle_of(project_id: str, definition_id: int) -> CodeBundle:
            return bundle

        await self.works.lab.queue()
        self.working = await self.works.executor(lease=lease, measures=self.measures)
        chosen = settings or quick(silence=20.0)
        hosts = StepHosts(self.working.executor.listener, bundles or bundle_of, chosen, self.measures)
        self.working.executor.attach({"code": hosts})
        self.works.schedule()

    async def make(self, *inputs: str) -> list[NewRun]:
        """Runs with these inputs, in that order."""
        runs = [replace(self.works.lab.run(f"lane-{n}"), input=given) for n, given in enumerate(inputs)]
        await self.works.make(*runs)
        return runs

    async def attempts(self, run: NewRun) -> list[str]:
        """What is on record of a run: `a 1 succeeded`."""
        return [f"{item} {attempt} {status}" for item, attempt, status in await self.works.log(run.run_id)]

    async def states(self, runs: Sequence[NewRun], seconds: float = 60.0) -> Counter[str]:
        """How they ended."""
        return Counter(row["state"] for row in await self.works.ended(len(runs), seconds))
