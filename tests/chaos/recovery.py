"""How long it took after each fault, from the fault to the first new progress of what it had stopped.

| fault | progress |
|---|---|
| an executor or a step host | each step that was in flight begins again (the ledger) |
| relay | the next run event with a later timestamp on the topic |
| ingest, a rebalance | every partition has made a run again |
| gateway | the next answer to somebody who asked it first |
| scheduler | how late a timer was that came due in the seconds after |
| Postgres | the next committed record |
| broker | the next end of a run whose event was produced after the fault |
"""

import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.faults import Fault
from tests.chaos.history import History
from tests.chaos.ledger import Ledger
from tests.chaos.orders import Order
from tests.chaos.plan import Kind

TIMERS_SECONDS = 5.0
OF_STEPS = frozenset({Kind.EXECUTOR_KILLED, Kind.EXECUTOR_PAUSED, Kind.ALL_EXECUTORS_KILLED, Kind.HOST_KILLED})


@dataclass(frozen=True, slots=True)
class Recovery:
    """Of one kind: `faults` happened, `times` are seconds, one for each thing that had been stopped. `away` is how long
    the target itself was not up, the middle one.
    """

    faults: int
    times: Sequence[float]
    away: float

    @property
    def p50(self) -> float | None:
        return round(statistics.median(self.times), 2) if self.times else None

    @property
    def most(self) -> float | None:
        return round(max(self.times), 2) if self.times else None


class Recoveries:
    def __init__(self, orders: Sequence[Order], history: History, ledger: Ledger, heard_at: Sequence[float]) -> None:
        self._ledger = ledger
        self._heard = sorted(heard_at)
        self._answers = sorted(
            (order.accepted, order.first_door) for order in orders if order.accepted and order.first_door
        )
        self._recorded = sorted(one.recorded for one in history.attempts)
        self._timers = _timers(history)
        by_key = {order.key: order for order in orders}
        self._made: dict[int, list[float]] = defaultdict(list)
        self._ends: list[tuple[float, float]] = []
        for run in history.runs:
            order = by_key.get(run.key)
            if order is not None and order.partition is not None and order.accepted is not None:
                self._made[order.partition].append(run.created)
                if run.ended is not None:
                    self._ends.append((order.accepted, run.ended))
        for times in self._made.values():
            times.sort()

    def by_kind(self, faults: Sequence[Fault]) -> Mapping[str, Recovery]:
        found: dict[str, Recovery] = {}
        for kind in Kind:
            of_kind = [fault for fault in faults if fault.kind is kind]
            if of_kind:
                away = statistics.median(one.back - one.at for one in of_kind)
                times = [time for one in of_kind for time in self.times(one)]
                found[kind.value] = Recovery(len(of_kind), times, round(away, 2))
        return found

    def times(self, fault: Fault) -> list[float]:
        if fault.kind in OF_STEPS:
            again = self._ledger.began_again(fault.keys, fault.at)
            return [max(0.0, began - fault.counts_from) for began in again.values()]
        found = {
            Kind.RELAY_KILLED: self._first(self._heard, fault.at),
            Kind.RELAY_PAUSED: self._first(self._heard, fault.at),
            Kind.POSTGRES_STOPPED: self._first(self._recorded, fault.at),
            Kind.GATEWAY_KILLED: self._first([at for at, door in self._answers if door == fault.door], fault.at),
            Kind.SCHEDULER_KILLED: self._latest_timer(fault.at),
            Kind.BROKER_KILLED: self._end_of_later(fault),
            Kind.BROKER_LOST: self._end_of_later(fault),
        }
        if fault.kind in found:
            seconds = found[fault.kind]
            return [] if seconds is None else [seconds]
        firsts = [self._first(times, fault.at) for times in self._made.values()]
        return [max(seconds for seconds in firsts if seconds is not None)] if any(firsts) else []

    @staticmethod
    def _first(times: Sequence[float], after: float) -> float | None:
        place = bisect_right(times, after)
        return times[place] - after if place < len(times) else None

    def _latest_timer(self, after: float) -> float | None:
        late = [woken - due for due, woken in self._timers if after < due < after + TIMERS_SECONDS]
        return max(late) if late else None

    def _end_of_later(self, fault: Fault) -> float | None:
        ends = [ended for accepted, ended in self._ends if accepted > fault.back]
        return min(ends) - fault.at if ends else None


def _timers(history: History) -> list[tuple[float, float]]:
    """When each durable sleep was due, and when its end was recorded."""
    due = {(one.run_id, one.step): one.due for one in history.attempts if one.kind == "sleep" and one.due is not None}
    ended = ((due.get((one.run_id, one.step)), one) for one in history.attempts if one.status == "succeeded")
    return [(at, one.recorded) for at, one in ended if at is not None]
