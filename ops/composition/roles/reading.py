"""How a role reads a topic, and when it may call itself ready."""

from collections.abc import Callable, Mapping

import structlog

from ops.composition.roles.parts import OnReady
from ops.settings import Settings
from processors.adapters.kafka.consumer import FETCH_WAIT, IDLE_FETCH_WAIT, ConsumerSettings, consume
from processors.ports.streams import ConsumerState, Phase

__all__ = ["IDLE_FETCH_WAIT", "consume", "nobody", "reading_of", "when_assigned"]

_log = structlog.get_logger("roles")


def reading_of(settings: Settings, topic: str, group: str, fetch_wait: float = FETCH_WAIT) -> ConsumerSettings:
    client_id = f"{settings.owner}-{group}"
    return ConsumerSettings(settings.kafka_bootstrap, group, topic, client_id, fetch_wait=fetch_wait)


def nobody(_role: str, _details: Mapping[str, object]) -> None:
    """Nobody waits for it."""


def when_assigned(on_ready: OnReady, role: str) -> Callable[[ConsumerState], None]:
    """Ready when the group has given this process its partitions for the first time; says what it waits for."""
    told, reason = False, ""

    def hear(state: ConsumerState) -> None:
        nonlocal told, reason
        if state.phase is Phase.ASSIGNED:
            reason = ""
            if not told:
                told = True
                on_ready(role, {"partitions": len(state.partitions)})
        elif state.phase is Phase.WAITING and state.reason != reason:
            reason = state.reason
            _log.warning("kafka_waiting", role=role, reason=reason)

    return hear
