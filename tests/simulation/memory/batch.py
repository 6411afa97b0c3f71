"""An executor's batch applied to the tables, in the order of the statements that Postgres runs."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from processors.ports.journal import Batch, Claim, RunEnd, RunRest
from tests.simulation.memory.scheduling import claim, hand_on, is_overdue
from tests.simulation.memory.tables import EndedRun, LiveRun, QueueId, Session, Tables

SUSPECT = 2  # runs that so many lost owners had in common are taken one at a time


def apply_batch(tables: Tables, xid: int, session: Session, batch: Batch, now: datetime) -> list[Claim]:
    """The session has proved itself. Answers what it owns more than before."""
    claims = _claim_hinted(tables, session, batch.hinted, now)
    if batch.look_for_granted and batch.room > len(batch.hinted):
        claims += _claim_any(tables, session, batch.room - len(batch.hinted), now)
    append(tables, session, batch)
    _consume_mail(tables, session, batch.mail)
    for run_id, crashes in batch.crashes.items():
        for live in _held(tables, session, [run_id]):
            live.crashes, live.lost_session = crashes, None
    if batch.ends or batch.rests:
        claims += _settle(tables, session, batch, now)
    for told in batch.announcements:
        tables.announce(xid, told.topic, told.key, None, told.value)
    return claims


def append(tables: Tables, session: Session, batch: Batch) -> None:
    for entry in batch.entries:
        log = tables.logs.setdefault(entry.run_id, [])
        if any(record.seq == entry.record.seq for record in log):
            raise ValueError(f"{entry.run_id} has a record {entry.record.seq}")
    for entry in batch.entries:
        tables.logs[entry.run_id].append(entry.record)
        tables.watcher.appended(entry, session.session_id)


def _claim_hinted(tables: Tables, session: Session, hinted: Sequence[str], now: datetime) -> list[Claim]:
    wanted = [tables.live[run_id] for run_id in sorted(set(hinted)) if run_id in tables.live]
    return [claim(tables, one, session, now) for one in wanted if one.state == "granted" and one.crashes < SUSPECT]


def _claim_any(tables: Tables, session: Session, room: int, now: datetime) -> list[Claim]:
    granted = [one for one in tables.live.values() if one.state == "granted"]
    granted.sort(key=lambda one: (one.granted_at, one.run.run_id))
    chosen = [one for one in granted if one.crashes < SUSPECT or one.has_mail or is_overdue(one, now)][:room]
    if not any(one.crashes >= SUSPECT for one in tables.owned_by(session.session_id)):
        chosen += [one for one in granted if one.crashes >= SUSPECT and one not in chosen][:1]
    return [claim(tables, one, session, now) for one in chosen]


def _consume_mail(tables: Tables, session: Session, mail: Iterable[int]) -> None:
    gone = [tables.mail.pop(mail_id) for mail_id in mail if mail_id in tables.mail]
    for live in _held(tables, session, [one.run_id for one in gone]):
        live.has_mail = any(left.run_id == live.run.run_id for left in tables.mail.values())


def _settle(tables: Tables, session: Session, batch: Batch, now: datetime) -> list[Claim]:
    for end in batch.ends:
        _end(tables, session, end)
    for rest in batch.rests:
        _rest(tables, session, rest, now)
    leaving: list[RunEnd | RunRest] = [*batch.ends, *batch.rests]
    freed: list[QueueId] = [(one.project_id, one.queue_id) for one in leaving]
    return hand_on(tables, session, freed, max(batch.room, 0), now)


def _end(tables: Tables, session: Session, end: RunEnd) -> None:
    for live in _held(tables, session, [end.run_id]):
        del tables.live[end.run_id]
        ended = tables.ended[end.run_id] = EndedRun(live, end.state, end)
        tables.watcher.ended(ended, session.session_id)
    if end.lane_seq is not None:
        lane_id = (end.project_id, end.queue_id, end.lane)
        lane = tables.lanes.get(lane_id)
        if lane is not None:
            lane.head = end.lane_seq
        behind = [one for one in tables.live.values() if one.lane == lane_id and (one.lane_seq or 0) > end.lane_seq]
        if behind:
            min(behind, key=lambda one: one.lane_seq or 0).ready = True


def _rest(tables: Tables, session: Session, rest: RunRest, now: datetime) -> None:
    for live in _held(tables, session, [rest.run_id]):
        live.state, live.session, live.crashes, live.owner_lost = rest.state, None, 0, False
        live.lost_session = None
        ways = [at for at in (rest.visible_at, live.deadline_at) if at is not None]
        live.visible_at = now if live.has_mail else min(ways, default=None)
        tables.watcher.rested(live, session.session_id)


def _held(tables: Tables, session: Session, run_ids: Iterable[str]) -> list[LiveRun]:
    found = [tables.live.get(run_id) for run_id in run_ids]
    return [live for live in found if live is not None and live.session == session.session_id]
