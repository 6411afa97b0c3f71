"""Actions: what a step of a YAML workflow does outside, one implementation for each kind of `uses`.

An action makes one attempt and returns JSON text, which its caller checks, redacts and bounds. It keeps
`timeout` itself, so that its error says whose time ran out; the caller cuts what runs on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from schemas.records import ErrorInfo
from topology.steps import ConnectorStep, SqlStep


class StepFailure(Exception):
    """The attempt failed, for a reason that may be recorded and shown."""

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(f"{error.code}: {error.message}")
        self.error = error


@dataclass(frozen=True, slots=True)
class ActionCall:
    """One attempt. `timeout` is in seconds; `scope` holds the variables of templates: input, steps, event,
    run and step.
    """

    project_id: str
    run_id: str
    step_id: str
    attempt: int
    idempotency_key: str
    timeout: float
    lane: str
    spec: ConnectorStep | SqlStep
    scope: Mapping[str, Any]


class Action(Protocol):
    async def __call__(self, call: ActionCall) -> str:
        """The result as JSON text. Raises StepFailure, or an error of `schemas.errors`: Refused is
        permanent, Unavailable is tried again.
        """
