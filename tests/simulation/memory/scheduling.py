"""Making runs, giving them their place, granting: the rules that every writer of the log shares."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from processors.ports.ingest import event_of
from processors.ports.journal import Claim
from processors.ports.runs import Grant, NewRun
from tests.simulation.memory.tables import Lane, LaneId, LiveRun, QueueId, Session, Tables

MOST_GRANTS = 1000


def queues_of(runs: Iterable[NewRun]) -> list[QueueId]:
    return sorted({(run.project_id, run.queue_id) for run in runs})


def create_runs(
    tables: Tables, xid: int, runs: Sequence[NewRun], accepted_at: Sequence[datetime | None], now: datetime
) -> None:
    """Those whose event this transaction was the first to see. Runs of ordered lanes take dense numbers; the first in
    a free lane takes the turn.
    """
    fresh = [(run, at) for run, at in zip(runs, accepted_at, strict=True) if tables.inbox.get(event_of(run)) == xid]
    started: dict[LaneId, int] = {}
    for run, at in fresh:
        seat, vt, head = None, 0, 0
        queue = tables.queues.get((run.project_id, run.queue_id))
        if run.ordered and queue is not None:
            lane_id = (run.project_id, run.queue_id, run.lane)
            lane = tables.lanes.setdefault(lane_id, Lane())
            if lane_id not in started:
                started[lane_id] = lane.vt = max(lane.vt, queue.vt)
            lane.tail, lane.vt = lane.tail + 1, lane.vt + 1
            seat, vt, head = lane.tail, lane.vt, lane.head
        since = at or now
        live = LiveRun(
            run=run,
            lane_seq=seat,
            accepted_at=since,
            created_at=now,
            deadline_at=None if run.deadline is None else since + timedelta(seconds=run.deadline),
            stale_at=None if run.stale_at is None else datetime.fromisoformat(run.stale_at),
            ready=seat is None or seat == head + 1,
            vt=vt,
        )
        if run.run_id in tables.live:
            raise ValueError(f"{run.run_id} is there already")
        tables.live[run.run_id] = live
        if run.input_ref is not None:
            tables.stored_bodies.add(run.input_ref)
        tables.watcher.made(live)


def grant_ready(tables: Tables, queues: Sequence[QueueId], now: datetime) -> list[Grant]:
    """The free slots of these queues, whose counters were brought up to date, go to the runs that are ready."""
    grants: list[Grant] = []
    for queue in queues:
        row = tables.queues[queue]
        slots = min(max(row.limit - row.running, 0), MOST_GRANTS)
        chosen = tables.ready_in(queue)[:slots] if slots else []
        grants += [regranted(tables, live, now) for live in chosen]
        row.running += len(chosen)
        row.vt = max([row.vt, *(live.vt for live in chosen)])
    return grants


def is_overdue(live: LiveRun, now: datetime) -> bool:
    """It needs no slot: all that it does is end."""
    return live.deadline_at is not None and live.deadline_at <= now


def regranted(tables: Tables, live: LiveRun, now: datetime) -> Grant:
    live.state, live.session, live.fence, live.granted_at = "granted", None, live.fence + 1, now
    tables.watcher.granted(live)
    return Grant(live.run.run_id, live.fence, live.run.lane)


def claim(tables: Tables, live: LiveRun, session: Session, now: datetime) -> Claim:
    live.state, live.session, live.started_at = "running", session.session_id, live.started_at or now
    tables.watcher.claimed(live, session)
    return claim_of(tables, live)


def hand_on(tables: Tables, session: Session, freed: Sequence[QueueId], room: int, now: datetime) -> list[Claim]:
    """The slots of ended and parked runs go to the next ready ones, already running in this session; not where the
    queue's limit was lowered below what runs.
    """
    claims = []
    for queue in sorted(set(freed)):
        row, slots = tables.queues[queue], freed.count(queue)
        chosen = tables.ready_in(queue)[: min(slots, room)] if row.running <= row.limit else []
        for live in chosen:
            regranted(tables, live, now)
            claims.append(claim(tables, live, session, now))
        row.deltas += len(chosen) - slots
    return claims


def claim_of(tables: Tables, live: LiveRun) -> Claim:
    run = live.run
    if live.started_at is None:
        raise ValueError(f"{run.run_id} is claimed by nobody")
    return Claim(
        run_id=run.run_id,
        fence=live.fence,
        generation=1,
        project_id=run.project_id,
        workflow_id=run.workflow_id,
        definition_id=run.definition_id,
        version=run.version,
        queue_id=run.queue_id,
        lane=run.lane,
        lane_seq=live.lane_seq,
        event_id=run.event_id,
        event_type=run.event_type,
        trigger_id=run.trigger_id,
        idempotency_key=run.idempotency_key,
        partition_key=run.partition_key,
        correlation_id=run.correlation_id,
        operation_version=run.operation_version,
        redrive_count=run.redrive_count,
        occurred_at=datetime.fromisoformat(run.occurred_at),
        accepted_at=live.accepted_at,
        started_at=live.started_at,
        crashes=live.crashes,
        max_attempts=tables.queues[live.queue].max_attempts,
        input=run.input,
        owner_lost=live.owner_lost,
        has_mail=live.has_mail,
        deadline_at=live.deadline_at,
        stale_at=live.stale_at,
        input_ref=run.input_ref,
    )
