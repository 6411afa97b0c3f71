"""Bodies of YAML workflows on a stage: what is around them is driven by the test."""

from dataclasses import dataclass, field
from typing import Any

from processors.ports.bodies import BodyStart
from processors.runtime.yaml_body import CONNECTOR, SQL, YamlBodies
from tests.support.yaml_listener import RememberingListener
from tests.support.yaml_runs import MOMENT, RUN_ID, DrivenAction
from topology.workflows import WorkflowSpec


@dataclass
class Stage:
    """Bodies with a listener, two driven actions and a clock that stands at 100."""

    listener: RememberingListener = field(default_factory=RememberingListener)
    connector: DrivenAction = field(default_factory=DrivenAction)
    sql: DrivenAction = field(default_factory=DrivenAction)
    specs: dict[int, WorkflowSpec | Exception] = field(default_factory=dict)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.bodies = YamlBodies(
            self.listener, self._definition, {CONNECTOR: self.connector, SQL: self.sql}, lambda: self.now
        )

    async def _definition(self, definition_id: int) -> WorkflowSpec:
        found = self.specs[definition_id]
        if isinstance(found, Exception):
            raise found
        return found

    def start(self, spec: WorkflowSpec | Exception, start: BodyStart) -> None:
        self.specs[start.definition_id] = spec
        self.bodies.start(start)

    def deliver(self, seq: int, item: str, outcome: str = "succeeded", **rest: Any) -> None:
        fields = {"value": None, "error": None, "go_until": None, "fence": 1, **rest}
        self.bodies.deliver(
            RUN_ID, fields["fence"], seq, item, outcome, fields["value"], fields["error"], MOMENT, fields["go_until"]
        )
