"""Where runs die and are sent again, on the real log."""

import json
from collections.abc import Sequence

from processors.adapters.postgres.redrives import PostgresRedrives
from processors.ports.journal import Batch, RunEnd
from processors.ports.measures import Measures
from processors.ports.redrives import Order
from processors.ports.storage import Storage
from processors.runtime.current_catalog import CurrentCatalog
from processors.scheduler.redriver import Redriver
from schemas.ids import dead_letter_id, redrive_id
from schemas.records import ErrorInfo
from tests.integration.log.lab import PROJECT
from tests.integration.log.polls import Stage, Topic

QUEUE = "q_orders"


class Yard:
    """Where runs die and are sent again."""

    def __init__(self, stage: Stage, redrives: PostgresRedrives) -> None:
        self.stage, self.lab, self.redrives = stage, stage.lab, redrives
        self.topic = Topic()
        self.measures = Measures()

    def redriver(self, storage: Storage | None = None) -> Redriver:
        return Redriver(self.redrives, CurrentCatalog(self.stage.catalog), self.measures, storage)

    async def take(self, count: int, lane: str | None = None) -> None:
        """Events become runs, each in a lane of its own or all in one."""
        data = [json.dumps({"lane": lane or f"lane-{number}", "n": number}) for number in range(count)]
        await self.stage.ingest([self.topic.direct(data=one) for one in data])

    async def die(self) -> list[str]:
        """Every run that is there fails, one after the other where a lane keeps them in order."""
        journal = await self.lab.journal()
        died: list[str] = []
        while claims := await self.lab.claim(journal):
            ends = []
            for claim in claims:
                died.append(dead_letter_id(self.topic.millis + len(died)))
                ends.append(
                    RunEnd(
                        claim.run_id,
                        claim.project_id,
                        claim.queue_id,
                        claim.lane,
                        claim.lane_seq,
                        "failed",
                        None,
                        ErrorInfo("E_UPSTREAM_503", "Upstream", "no answer"),
                        died[-1],
                        "max_attempts_exceeded",
                        "died",
                    )
                )
            await journal.commit(Batch(ends=ends))
            await self.lab.schedule().feed()
        return died

    def order(
        self, letters: Sequence[str], rate: float = 1000.0, cap: float = 1000.0, *, allow_stale: bool = False
    ) -> Order:
        made = redrive_id(self.topic.millis)
        return Order(made, PROJECT, QUEUE, "tok_maria", "the partner is back", "true", allow_stale, rate, cap, letters)

    async def wind(self, seconds: float) -> None:
        """So much time passes for the pace of all orders."""
        await self.lab.rows(
            "update automation.redrives set paced_at = clock_timestamp() - make_interval(secs => %s)", seconds
        )

    async def redriven(self) -> int:
        """How many letters all orders have redriven."""
        return int(await self.lab.value("select coalesce(sum(redriven), 0)::int from automation.redrives"))

    async def look(self) -> tuple[int, float]:
        """What one look redrives of the one order that there is, and how many seconds of pace it had to give at most:
        by the database's clock, so that a machine may be as slow as it likes.
        """
        before, paced = await self.redriven(), await self.lab.value("select paced_at from automation.redrives")
        await self.redriver().look()
        spent = await self.lab.value("select extract(epoch from clock_timestamp() - %s)::double precision", paced)
        return await self.redriven() - before, float(spent)

    async def redrive(self, letters: Sequence[str]) -> None:
        await self.redrives.start(self.order(letters))
        await self.wind(1)
        await self.redriver().look()


AGEING = """
triggers:
  - id: trg_fresh
    type: event
    event: order.fresh
    workflow: wf_orders
    partitionKey: "{{ data.lane }}"
    deliver: {maxAge: 6h}
"""
