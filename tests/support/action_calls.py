"""Calls of actions as a YAML body makes them, and secrets in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from processors.ports.actions import ActionCall
from schemas.errors import Refused
from tests.support.yaml_runs import RUN_ID, spec_of
from topology.steps import SleepStep


@dataclass
class SecretsInMemory:
    found: dict[str, str] = field(default_factory=dict)

    def get(self, project: str, name: str) -> str:
        if name not in self.found:
            raise Refused("E_SECRET_UNKNOWN", f"the secret {name} of project {project} is not set")
        return self.found[name]


def call_of(
    step: str,
    *,
    given: Any = None,
    steps: Mapping[str, Any] | None = None,
    seconds: float = 5.0,
    project_id: str = "pj_shop",
    lane: str = "lane_1",
) -> ActionCall:
    """An attempt of the step that this YAML text (one list item) declares."""
    earlier = "".join(f"- {{id: {name}, uses: sleep, duration: 1s}}\n" for name in steps or {})
    spec = spec_of(earlier + step.strip()).steps[-1]
    if isinstance(spec, SleepStep):
        raise TypeError("a sleep is not attempted")
    key = f"{RUN_ID}:{spec.id}:g1"
    scope = {
        "input": {} if given is None else given,
        "steps": dict(steps or {}),
        "event": {"id": "evt_1", "data": given},
        "run": {"id": RUN_ID, "lane": lane},
        "step": {"id": spec.id, "idempotency_key": key},
    }
    return ActionCall(project_id, RUN_ID, spec.id, 1, key, seconds, lane, spec, scope)  # fmt: skip
