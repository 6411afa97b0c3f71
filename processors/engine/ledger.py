"""A decision in the making: collects records and effects, and keeps the state that they fold into in step."""

from datetime import datetime, timedelta

import msgspec

from processors.engine.effects import Deliver, DropBody, Effect, RunStep
from processors.engine.requests import RetryPolicy
from processors.engine.state import Item, Phase, RunState, fold_record
from schemas.records import RUN_ITEM, ErrorInfo, Kind, Record, Status


class Ledger(msgspec.Struct, frozen=True, gc=False):
    """One decision. `now` is an aware UTC datetime, `roll` a number in [0, 1)."""

    state: RunState
    now: datetime
    roll: float
    records: list[Record] = []
    effects: list[Effect] = []

    def record(
        self,
        kind: Kind,
        item: str,
        attempt: int,
        status: Status,
        after: int,
        *,
        final: bool,
        due: datetime | None = None,
        key: str | None = None,
        value: str | None = None,
        error: ErrorInfo | None = None,
        cost: float | None = None,
    ) -> Record:
        """Append a record with the next seq and fold it."""
        seq = self.state.seq + 1
        made = Record(seq, kind, item, attempt, status, after, final, due, key, value, error, cost, self.now)
        return self._add(made)

    def _add(self, record: Record) -> Record:
        fold_record(self.state, record)
        self.records.append(record)
        return record

    def control(self, status: Status, *, value: str | None = None, error: ErrorInfo | None = None) -> Record:
        """A record of the run itself. `after` is the last delivery that the body has answered."""
        return self.record(
            Kind.RUN,
            RUN_ITEM,
            0,
            status,
            max(self.state.heard, 0),
            final=status is Status.ENDED,
            value=value,
            error=error,
        )

    def settle(
        self,
        name: str,
        item: Item,
        status: Status,
        value: str | None = None,
        cost: float | None = None,
        key: str | None = None,
    ) -> Record:
        """The final outcome of an item that did not fail."""
        seq = self.state.seq + 1
        made = Record(
            seq, item.kind, name, item.attempt, status, item.after, True, None, key, value, None, cost, self.now
        )
        return self._add(made)

    def lose(self, name: str, item: Item) -> None:
        """The attempt was in flight when its owner or host went: it takes a number and nothing else."""
        self.record(
            item.kind,
            name,
            max(item.attempt, 1),
            Status.LOST,
            item.after,
            final=False,
            key=self.state.key_of(name),
        )

    def deliver(self, record: Record, value: str | None) -> None:
        """Hand an outcome to the body, unless the run is closing: what settles then is not delivered."""
        if self.state.closing is not None or not self.state.body_started:
            return
        self.state.told = record.seq
        at = record.recorded_at or self.now
        self.effects.append(Deliver(record.seq, record.item, record.status, value, record.error, at))

    def drop_body(self) -> None:
        """The run rests or ends: no body is there to hear anything."""
        self.state.body_started = False
        self.effects.append(DropBody())

    def fire(self, name: str, item: Item) -> None:
        """A timer is due."""
        self.deliver(self.settle(name, item, Status.SUCCEEDED), value=None)

    def launch(self, name: str, item: Item) -> None:
        """Start the next attempt of a step that this life's body has asked for."""
        if item.request is None:
            raise ValueError(f"{self.state.run_id}: step {name} was not asked for in this life")
        attempt = item.attempt + 1
        token = f"x{self.state.generation}.{attempt}"
        self.fly(item, attempt, token)
        self.effects.append(RunStep(name, attempt, token, self.state.key_of(name), item.request.timeout))

    def fly(self, item: Item, attempt: int, token: str) -> None:
        item.phase, item.attempt, item.token = Phase.IN_FLIGHT, attempt, token
        self.state.in_flight += 1

    def land(self, item: Item) -> None:
        if item.token is not None:
            item.token = None
            self.state.in_flight -= 1

    def delay(self, policy: RetryPolicy, failure: int, retry_after: float | None) -> timedelta:
        """Full jitter: uniform(0, min(base * 2^(n-1), cap)); a server's own wish wins, up to the cap."""
        if retry_after is not None:
            return timedelta(seconds=min(max(retry_after, 0.0), policy.cap))
        most = min(policy.base * 2.0 ** min(failure - 1, 60), policy.cap)
        return timedelta(seconds=self.roll * most)
