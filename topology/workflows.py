"""Workflows: what a YAML file or a Python body declares, and what is stored of a published version."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from topology.expressions import LANE_VARIABLES, STEP_VARIABLES
from topology.lanes import lane_value
from topology.queues import DEFAULT_QUEUE, Concurrency
from topology.shapes import Length, Line, QueueId, Spec, Text, TriggerId, WorkflowId, WorkflowName, templates_with
from topology.steps import StepSpec
from topology.templates import Template, compile_template
from topology.triggers import WholeVersion, WorkflowTrigger

MAX_STEPS = 1000

LaneKey = Annotated[Line, templates_with(LANE_VARIABLES)]


class ConcurrencySpec(Spec):
    """How many runs of the workflow go on at once, and which of them keep their order."""

    max: Concurrency | None = None
    partition_key: LaneKey | None = None


class WorkflowFile(Spec):
    """A YAML workflow file."""

    later: ClassVar[frozenset[str]] = frozenset(
        {"input", "timeout", "retry", "priority", "onFailure", "on_failure", "signals"}
    )

    name: WorkflowName
    version: WholeVersion
    description: Text | None = None
    trigger: WorkflowTrigger | None = None
    concurrency: ConcurrencySpec | None = None
    queue: QueueId | None = None
    deadline: Length | None = None
    steps: Annotated[list[StepSpec], Field(min_length=1, max_length=MAX_STEPS)]
    output: Annotated[Any, templates_with(STEP_VARIABLES)] = None


class WorkflowSpec(Spec):
    """A published version. A code workflow has no `steps`: its `entry` in the bundle does. `deadline` is in seconds
    from when the event was accepted.
    """

    name: WorkflowName
    workflow_id: WorkflowId
    version: WholeVersion
    label: Line
    kind: Literal["yaml", "code"]
    description: Text | None = None
    steps: list[StepSpec] = Field(default_factory=list)
    output: Any = None
    bundle_digest: str | None = None
    entry: str | None = None
    concurrency: ConcurrencySpec | None = None
    queue_id: QueueId = DEFAULT_QUEUE
    triggers: list[TriggerId] = Field(default_factory=list)
    # Not stored where none was declared: what was published before there were deadlines keeps its checksum.
    deadline: Annotated[Length | None, Field(exclude_if=lambda seconds: seconds is None)] = None

    @cached_property
    def output_template(self) -> Template | None:
        """The run's result; None means: each step's result by its id."""
        return None if self.output is None else compile_template(self.output, STEP_VARIABLES)

    @cached_property
    def partition_template(self) -> Template | None:
        key = self.concurrency.partition_key if self.concurrency else None
        return None if key is None else compile_template(key, LANE_VARIABLES)

    def lane_of(self, scope: Mapping[str, Any]) -> str | None:
        """The run's lane by the workflow's own key (scope: event, data, input, run); None where it declares
        none and the envelope's key counts. Raises Refused E_EXPRESSION.
        """
        template = self.partition_template
        return None if template is None else lane_value(template, scope)

    def labelled(self, label: str) -> Self:
        """The same version under another label, such as `3-dev.2`."""
        return self.model_copy(update={"label": label})
