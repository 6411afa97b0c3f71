"""Steps of a YAML workflow: a connector's operation, a SQL statement, a sleep.

What a step needs at run time (`condition`, `arguments`, `bound_values`) is compiled at its first use.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    field_validator,
    model_validator,
)

from topology.expressions import STEP_VARIABLES, Condition, compile_condition
from topology.names import OPERATION_NAME, WORKFLOW_NAME, hint, id_from_name
from topology.shapes import ConditionText, Length, Spec, StepId, Text, Timeout, fault, templates_with
from topology.sql_statements import parameters_of
from topology.templates import Template, compile_template, has_template

MAX_PARAMETERS = 1000

_CONNECTOR_USE = re.compile(rf"connector/({WORKFLOW_NAME.pattern})\.({OPERATION_NAME.pattern})")
NOT_UNDONE = (
    "`compensate` is kept, and does not run in this version: "
    "when a later step fails, what this one has done stays until somebody undoes it"
)
_LATER_USES = frozenset({"storage/put", "queue/publish", "vpn/http", "bot/invoke"})
_USES = ("connector/<name>.<operation>", "sql/execute", "sleep")


class RetrySpec(Spec):
    """How often a step is tried in all, and the waits between: uniform(0, min(base * 2^(n-1), cap))."""

    max: Annotated[StrictInt, Field(ge=1, le=1000)] = 3
    strategy: Literal["exponential-jitter"] = "exponential-jitter"
    base: Length = 1.0
    cap: Length = 300.0

    @model_validator(mode="after")
    def _check_cap(self) -> Self:
        if self.cap < self.base:
            raise fault(f"`cap` ({self.cap:g} s) is below `base` ({self.base:g} s)")
        return self


class OperationUse(Spec):
    """A connector's operation as a step names it."""

    connector_id: str
    operation: str


def parse_use(text: str) -> OperationUse:
    """`connector/payments.authorize`. Raises a validator's fault."""
    match = _CONNECTOR_USE.fullmatch(text)
    if match is None:
        raise fault(f"`{text[:80]}` is not an operation such as `connector/payments.authorize`")
    return OperationUse.model_validate({"connectorId": id_from_name("con_", match[1]), "operation": match[2]})


def _check_use(text: str) -> str:
    parse_use(text)
    return text


UseText = Annotated[StrictStr, AfterValidator(_check_use)]


class _Step(Spec):
    id: StepId
    condition_text: Annotated[ConditionText | None, Field(alias="if")] = None

    @cached_property
    def condition(self) -> Condition | None:
        return None if self.condition_text is None else compile_condition(self.condition_text)


class _Attempted(_Step):
    missing_codes: ClassVar[Mapping[str, str]] = {"timeout": "E_STEP_TIMEOUT_MISSING"}

    timeout: Timeout
    retry: RetrySpec = RetrySpec()
    exclusive: StrictBool = False
    compensate: UseText | None = None

    @field_validator("exclusive")
    @classmethod
    def _check_exclusive(cls, value: bool) -> bool:
        if value:
            raise fault("`exclusive` is not available in this version: nobody could confirm the step; remove it")
        return value

    @cached_property
    def undo(self) -> OperationUse | None:
        """The operation that undoes the step."""
        return None if self.compensate is None else parse_use(self.compensate)


class ConnectorStep(_Attempted):
    """Calls an operation of a connector. `with` is the operation's `input`; without it, it is the run's."""

    branch: ClassVar[str] = "connector"

    uses: UseText
    given: Annotated[Any, Field(alias="with"), templates_with(STEP_VARIABLES)] = None

    @cached_property
    def target(self) -> OperationUse:
        return parse_use(self.uses)

    @cached_property
    def arguments(self) -> Template | None:
        return None if self.given is None else compile_template(self.given, STEP_VARIABLES)


class SqlStep(_Attempted):
    """Runs one statement in the project's database. Without `params`, `$1` is the run's lane value."""

    branch: ClassVar[str] = "sql"

    uses: Literal["sql/execute"]
    query: Text
    params: Annotated[list[Any] | None, templates_with(STEP_VARIABLES)] = None

    @model_validator(mode="after")
    def _check_parameters(self) -> Self:
        if not self.query.strip():
            raise fault("`query` is empty", path=("query",))
        if has_template(self.query):
            found = "`{{` in a query would let data become SQL; write $1 and put the value into `params`"
            raise fault(found, offset=self.query.index("{{"), path=("query",))
        used = parameters_of(self.query)
        given = 1 if self.params is None else len(self.params)
        if given > MAX_PARAMETERS:
            raise fault(f"{given} parameters; at most {MAX_PARAMETERS} can be bound", path=("params",))
        highest = max(used, default=0)
        if 0 in used or highest > given:
            where = (
                "without `params` there is only $1, the lane value"
                if self.params is None
                else (f"`params` holds {given}")
            )
            wrong = 0 if 0 in used else highest
            raise fault(f"the query uses ${wrong}, but {where}", path=("query",))
        unused = sorted(set(range(1, given + 1)) - used) if self.params is not None else []
        if unused:
            raise fault(f"the query never uses ${unused[0]}; remove it from `params`", path=("params",))
        return self

    @cached_property
    def bound_values(self) -> Template | None:
        """The parameters as a list; None means: the lane value, if the query binds `$1`."""
        return None if self.params is None else compile_template(self.params, STEP_VARIABLES)

    @property
    def binds_lane(self) -> bool:
        return self.params is None and bool(parameters_of(self.query))


class SleepStep(_Step):
    """Waits, without holding a slot of the queue."""

    branch: ClassVar[str] = "sleep"

    uses: Literal["sleep"]
    duration: Length


def _branch_of(value: Any) -> str:
    uses = value.get("uses") if isinstance(value, Mapping) else getattr(value, "uses", None)
    return {"sql/execute": "sql", "sleep": "sleep"}.get(str(uses), "connector")


def _check_uses(value: Any) -> Any:
    """Before a branch is chosen: say what is wrong with `uses` itself."""
    if isinstance(value, Spec):
        return value
    if not isinstance(value, Mapping):
        raise fault("a step is a mapping with `id`, `uses` and `timeout`")
    uses = value.get("uses")
    if uses is None:
        raise fault(f"a step says what it `uses`: {', '.join(f'`{use}`' for use in _USES)}")
    if not isinstance(uses, str):
        raise fault("`uses` must be text", path=("uses",))
    if uses in _LATER_USES:
        raise fault(f"`{uses}` is not available in this version", path=("uses",))
    if uses not in ("sql/execute", "sleep") and not uses.startswith("connector/"):
        near = hint(uses, _USES)
        raise fault(f"`{uses[:80]}` is not something a step can use{near}", path=("uses",))
    return value


StepSpec = Annotated[
    Annotated[ConnectorStep, Tag("connector")] | Annotated[SqlStep, Tag("sql")] | Annotated[SleepStep, Tag("sleep")],
    Discriminator(_branch_of),
    BeforeValidator(_check_uses),
]
