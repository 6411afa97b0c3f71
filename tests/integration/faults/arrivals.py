"""Things to accept and to ingest, for tests that count what became of them."""

from datetime import UTC, datetime

from processors.ports.door import Acceptance
from processors.ports.ingest import Arrival, Followed, Harvest, Reached
from processors.ports.runs import NewRun
from schemas.ids import new_event_id, run_id
from tests.integration.log.lab import EVENTS, PROJECT, hash_of


def webhook(key: str, body: str = '{"amount":100}', *, project: str = PROJECT, lane: str = "c-1") -> Acceptance:
    event = new_event_id(int(datetime.now(UTC).timestamp() * 1000))
    return Acceptance(
        project_id=project,
        idempotency_key=key,
        key_source="header",
        body_hash=hash_of(body),
        event_id=event,
        partition_key=lane,
        run_id=run_id(PROJECT, event, "trg_orders", 1),
        envelope=f"{event} {body}".encode(),
    )


def harvest_of(runs: list[NewRun], *, direct: bool = True, offset: int = 0) -> Harvest:
    """A poll with a record for each run."""
    harvest = Harvest(EVENTS)
    harvest.runs += runs
    for place, run in enumerate(runs):
        harvest.arrivals.append(
            Arrival(
                event_id=run.event_id,
                project_id=run.project_id,
                idempotency_key=run.idempotency_key,
                body_hash=hash_of(run.input),
                accepted_at=None if direct else datetime.now(UTC),
                topic=EVENTS,
                partition=0,
                offset=offset + place,
                raw=run.input.encode(),
                dead_letter_id=f"dlq_{run.event_id[4:]}",
            )
        )
    harvest.reached[0] = Reached(offset + len(runs), Followed())
    return harvest
