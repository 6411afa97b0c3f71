"""Triggers: which origin starts which workflow. Items of a topology file, or `trigger` of a workflow file.

Schedules are read and checked, and refused whatever they say: they belong to a later version.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictInt

from topology.expressions import FILTER_VARIABLES, Filter, compile_filter
from topology.lanes import lane_value
from topology.shapes import EventType, FilterText, Length, Line, Spec, TriggerId, WorkflowId, fault, templates_with
from topology.templates import Template, compile_template
from topology.verification import OWN, VerifyField

LATER_TYPE = "schedule"
LATEST = "latest"

Kind = Literal["event", "webhook", "manual"]
FilterKey = Annotated[Line, templates_with(FILTER_VARIABLES)]
WholeVersion = Annotated[StrictInt, Field(ge=1, le=2**31 - 1)]


def _version(value: object) -> object:
    """`latest` is the default and means: no number."""
    return None if value == LATEST else value


Version = Annotated[WholeVersion | None, BeforeValidator(_version)]


class TriggerSpec(Spec):
    """A trigger in force. `version` None means the latest; `owner` tells a workflow file's from declared ones."""

    id: TriggerId
    type: Kind
    workflow: WorkflowId
    version: WholeVersion | None = None
    event: EventType | None = None
    filter: FilterText | None = None
    partition_key: FilterKey | None = None
    require_idempotency_key: StrictBool = False
    # Left out where it says nothing: the checksums of what was published before there was such a thing hold.
    max_age: Annotated[Length | None, Field(exclude_if=lambda told: told is None)] = None
    verify: VerifyField
    drop_on_filter_miss: Annotated[StrictBool, Field(exclude_if=lambda told: told is True)] = True
    owner: Literal["topology", "workflow"] = "topology"

    @property
    def preset(self) -> str:
        """Whose way of signing a webhook takes."""
        return OWN if self.verify is None else self.verify.preset

    @property
    def has_own_secret(self) -> bool:
        """Whether it is a webhook whose secret the platform makes."""
        return self.type == "webhook" and (self.verify is None or self.verify.secret_ref is None)

    @cached_property
    def compiled_filter(self) -> Filter | None:
        return None if self.filter is None else compile_filter(self.filter)

    @cached_property
    def partition_template(self) -> Template | None:
        return None if self.partition_key is None else compile_template(self.partition_key, FILTER_VARIABLES)

    def accepts(self, event: Mapping[str, Any]) -> bool:
        """Whether the filter lets the envelope pass. Raises Refused E_FILTER_ERROR."""
        compiled = self.compiled_filter
        return compiled is None or compiled.matches(event)

    def partition_of(self, event: Mapping[str, Any]) -> str | None:
        """The envelope's key by this trigger; None where the trigger names none. Raises Refused E_EXPRESSION."""
        template = self.partition_template
        if template is None:
            return None
        return lane_value(template, {"event": event, "data": event.get("data")})


class Deliver(Spec):
    """How a trigger's events are delivered: only while they are at most so old; whether a filter's miss is kept."""

    max_age: Length | None = None
    drop_on_filter_miss: StrictBool = True

    def flat(self) -> dict[str, Any]:
        """As fields of a trigger."""
        return self.model_dump(exclude_none=True)


class _Item(Spec):
    id: TriggerId
    workflow: WorkflowId
    version: Version = None


class EventItem(_Item):
    type: Literal["event"]
    event: EventType
    filter: FilterText | None = None
    partition_key: FilterKey | None = None
    deliver: Deliver = Deliver()


class WebhookItem(_Item):
    type: Literal["webhook"]
    filter: FilterText | None = None
    partition_key: FilterKey | None = None
    require_idempotency_key: StrictBool = False
    verify: VerifyField
    deliver: Deliver = Deliver()


class ManualItem(_Item):
    type: Literal["manual"]


class CatchUp(Spec):
    enabled: StrictBool = True
    max_occurrences: Annotated[StrictInt, Field(ge=0, le=10_000)] = 1
    max_age: Length | None = None


class ScheduleItem(_Item):
    type: Literal["schedule"]
    cron: Annotated[Line, Field(pattern=r"^\s*(\S+\s+){4}\S+\s*$")]
    tz: Line
    dst_policy: Literal["skip-nonexistent", "run-once", "run-twice"] = "skip-nonexistent"
    overlap: Literal["skip", "queue", "allow"] = "skip"
    catch_up: CatchUp = CatchUp()


ITEMS: Mapping[str, type[_Item]] = {
    "event": EventItem,
    "webhook": WebhookItem,
    "manual": ManualItem,
}


class WebhookOptions(Spec):
    """`webhook:` of a workflow file; `webhook: true` takes all as it is."""

    id: TriggerId | None = None
    filter: FilterText | None = None
    partition_key: FilterKey | None = None
    require_idempotency_key: StrictBool = False
    deliver: Deliver = Deliver()
    verify: VerifyField


def _webhook_options(value: object) -> object:
    if value is True:
        return {}
    return None if value is False else value


class WorkflowTrigger(Spec):
    """`trigger:` of a workflow file: an event, a webhook, or both."""

    later: ClassVar[frozenset[str]] = frozenset({"schedule", "cron", "tz"})

    id: TriggerId | None = None
    event: EventType | None = None
    filter: FilterText | None = None
    partition_key: FilterKey | None = None
    deliver: Deliver = Deliver()
    webhook: Annotated[WebhookOptions | None, BeforeValidator(_webhook_options)] = None


_OF_THE_EVENT = {"filter": "filter", "partition_key": "partitionKey", "deliver": "deliver"}


def triggers_of_workflow(declared: WorkflowTrigger, workflow_id: str, version: int) -> list[TriggerSpec]:
    """The triggers that a workflow file declares for its own version. Raises a validator's fault."""
    if declared.event is None and declared.webhook is None:
        raise fault("a trigger names an `event`, or has `webhook: true`")
    for field, key in _OF_THE_EVENT.items():
        if declared.event is None and field in declared.model_fields_set:
            raise fault(f"`{key}` belongs to `event`; a webhook's own goes inside `webhook:`", path=(key,))
    found: list[TriggerSpec] = []
    common = {"workflow": workflow_id, "version": version, "owner": "workflow"}
    plain_name = workflow_id.removeprefix("wf_")
    if declared.event is not None:
        default = f"trg_{plain_name}_event"
        shape = declared.model_dump(include={"event", "filter", "partition_key"}, exclude_none=True)
        shape |= declared.deliver.flat()
        found.append(TriggerSpec.model_validate(shape | common | {"id": declared.id or default, "type": "event"}))
    if declared.webhook is not None:
        own = None if declared.event is not None else declared.id
        chosen = declared.webhook.id or own or f"trg_{plain_name}_webhook"
        shape = declared.webhook.model_dump(exclude={"id", "deliver"}, exclude_none=True)
        shape |= declared.webhook.deliver.flat()
        found.append(TriggerSpec.model_validate(shape | common | {"id": chosen, "type": "webhook"}))
    return found
