"""Event types that a project declares: what the data of such an event has to be, as JSON Schema or as Avro.

A change is the type's next version. By the rule that goes without saying it takes whatever the version before took.
"""

from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from schemas.event_schemas.checking import EventSchema
from schemas.event_schemas.dialect import Schema, SchemaFault
from topology.shapes import EventType, Spec, fault

_LARGEST_DATA = 1_000_000


class EventTypeSpec(Spec):
    """One event type. Exactly one of `schema` and `avro` is there."""

    type: EventType
    json_schema: Annotated[Any, Field(alias="schema", exclude_if=lambda told: told is None)] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "json_schema" not in self.model_fields_set:
            raise fault("an event type has a `schema`: `true`, or a mapping in the words of JSON Schema")
        try:
            self.compiled  # noqa: B018 - it is kept
        except SchemaFault as wrong:
            raise fault(f"the schema cannot be taken: {wrong}", path=("schema", *wrong.path)) from wrong
        return self

    @property
    def words(self) -> Schema:
        """The schema in the words of JSON Schema."""
        found: Schema = self.json_schema
        return found

    @cached_property
    def compiled(self) -> EventSchema:
        return EventSchema(self.words)

    @property
    def takes_everything(self) -> bool:
        return self.words is True or self.words == {}

    @property
    def limit(self) -> int | None:
        """Data of how many bytes can be checked, where that is less than a door takes."""
        return self.compiled.largest if self.compiled.largest < _LARGEST_DATA else None
