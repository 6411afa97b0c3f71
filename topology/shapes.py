"""What all declared shapes share: strict models with camelCase keys, and the small types of their fields.

A model says what a key is called, what it holds and which keys belong to a later version. Errors carry a
code as their type and, where text holds an expression, the offset in it; `problems` gives them a place.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, StrictStr
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from schemas.errors import Refused
from topology.durations import parse_seconds
from topology.expressions import STEP_VARIABLES, compile_condition, compile_filter
from topology.names import EVENT_TYPE, MAX_EVENT_TYPE, STEP_ID, WORKFLOW_NAME, id_pattern
from topology.templates import compile_template

MAX_TIMEOUT = 72 * 3600.0
MAX_SLEEP = 366 * 86400.0
MAX_LINE = 1000
MAX_TEXT = 64 * 1024

_CONTROL = re.compile("[\x00-\x1f\x7f]")


class Spec(BaseModel):
    """A declared thing. `later` names keys that are known but not available yet; `missing_codes` gives a
    code of its own to a key that is left out.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, strict=True, serialize_by_alias=True
    )
    later: ClassVar[frozenset[str]] = frozenset()
    missing_codes: ClassVar[Mapping[str, str]] = {}

    def to_json(self) -> str:
        """What is stored; `from_json` gives an equal spec. Defaults are written out: a later version may
        have others, and what was published keeps its meaning.
        """
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.model_validate_json(text)


def fault(
    message: str, code: str = "E_SPEC_INVALID", *, offset: int | None = None, path: tuple[str | int, ...] = ()
) -> PydanticCustomError:
    """An error of a validator: `path` leads from the field to the part at fault."""
    # The message is given as a value: as a template its braces would be read as fields.
    return PydanticCustomError(code, "{text}", {"text": message, "offset": offset, "path": path})


def _matching(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise fault(f"`{text[:80]}` is not {what}")
        return text

    return AfterValidator(check)


def _one_line(text: str) -> str:
    if len(text) > MAX_LINE:
        raise fault(f"a text of {len(text)} characters; at most {MAX_LINE} stand here")
    if _CONTROL.search(text):
        raise fault("control characters and line ends cannot stand here")
    return text


def _storable(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise fault(f"a text of {len(text)} characters; at most {MAX_TEXT} stand here")
    if "\0" in text:
        raise fault("U+0000 cannot stand here")
    return text


def _event_type(text: str) -> str:
    if len(text) > MAX_EVENT_TYPE or not EVENT_TYPE.fullmatch(text):
        raise fault(f"`{text[:80]}` is not an event type such as `billing.invoice.finalized`")
    return text


def _seconds(limit: float) -> BeforeValidator:
    def read(value: object) -> float:
        try:
            seconds = parse_seconds(value)
        except ValueError as error:
            raise fault(str(error)) from error
        if seconds > limit:
            raise fault(f"`{value}` is longer than the {limit / 3600:.0f} hours that are allowed here")
        return seconds

    return BeforeValidator(read)


def expression_error(error: Refused, path: tuple[str | int, ...] = ()) -> PydanticCustomError:
    offset = error.details.get("offset")
    return fault(error.message, error.code, offset=offset if isinstance(offset, int) else 0, path=path)


def check_templates(value: Any, variables: tuple[str, ...], path: tuple[str | int, ...] = ()) -> Any:
    """Compile every template inside `value`, so that a fault has the path of its text."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_templates(item, variables, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_templates(item, variables, (*path, index))
    elif isinstance(value, str):
        if len(value) > MAX_TEXT or "\0" in value:
            raise fault(f"text here has at most {MAX_TEXT} characters and no U+0000", path=path)
        try:
            compile_template(value, variables)
        except Refused as error:
            raise expression_error(error, path) from error
    return value


def templates_with(variables: tuple[str, ...]) -> AfterValidator:
    return AfterValidator(lambda value: check_templates(value, variables))


def _compiling(compile_text: Callable[[str], object]) -> AfterValidator:
    def check(text: str) -> str:
        try:
            compile_text(text)
        except Refused as error:
            raise expression_error(error) from error
        return text

    return AfterValidator(check)


Line = Annotated[StrictStr, AfterValidator(_one_line)]
Text = Annotated[StrictStr, AfterValidator(_storable)]
Timeout = Annotated[float, _seconds(MAX_TIMEOUT)]
Length = Annotated[float, _seconds(MAX_SLEEP)]
EventType = Annotated[StrictStr, AfterValidator(_event_type)]
WorkflowName = Annotated[
    StrictStr, _matching(WORKFLOW_NAME, "a workflow name: a to z, 0 to 9, `-` and `_`, at most 63, a letter first")
]
StepId = Annotated[StrictStr, _matching(STEP_ID, "a step id: a to z, 0 to 9, `-` and `_`, at most 64, a letter first")]
WorkflowId = Annotated[StrictStr, _matching(id_pattern("wf_"), "a workflow's id such as `wf_invoice_settle`")]
TriggerId = Annotated[StrictStr, _matching(id_pattern("trg_"), "a trigger's id such as `trg_refund_large`")]
ConnectorId = Annotated[StrictStr, _matching(id_pattern("con_"), "a connector's id such as `con_payments`")]
QueueId = Annotated[StrictStr, _matching(id_pattern("q_"), "a queue's id such as `q_invoice_settle`")]
SecretId = Annotated[StrictStr, _matching(id_pattern("sec_"), "a reference to a secret such as `sec_partner`")]
FilterText = Annotated[StrictStr, _compiling(compile_filter)]
ConditionText = Annotated[StrictStr, _compiling(lambda text: compile_condition(text, STEP_VARIABLES))]
