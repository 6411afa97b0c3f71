"""Hints on the commands topic, keyed by the first lane of each record, and a wake-up for executors that have room."""

from collections.abc import Sequence

from processors.adapters.postgres.wakeups import Channel, Notifier
from processors.ports.runs import Grant
from processors.ports.streams import Outgoing, Producer
from schemas.commands import MOST_A_RECORD, StepCommand, encode_commands


class CommandHints:
    """Implements `Hints`. Without a producer (the broker is not configured for this role) the wake-up suffices."""

    def __init__(self, topic: str, notifier: Notifier, producer: Producer | None) -> None:
        self._topic = topic
        self._notifier = notifier
        self._producer = producer

    def granted(self, grants: Sequence[Grant]) -> None:
        if not grants:
            return
        self._notifier.wake(Channel.GRANTED)
        if self._producer is None:
            return
        values = encode_commands([StepCommand(grant.run_id, grant.fence) for grant in grants])
        lanes = [grant.lane.encode() for grant in grants[::MOST_A_RECORD]]
        self._producer.send_unawaited(
            [Outgoing(self._topic, lane, value) for lane, value in zip(lanes, values, strict=True)]
        )
