"""Event types that a project declares: what the data of such an event has to be, as JSON Schema or as Avro.

A change is the type's next version. Unless the declaration says otherwise, it takes whatever the version before took.
"""

from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from schemas.event_schemas.avro_types import words_of
from schemas.event_schemas.checking import EventSchema
from schemas.event_schemas.compatibility import narrowed
from schemas.event_schemas.dialect import Path, Schema, SchemaFault
from topology.shapes import EventType, Spec, fault

_LARGEST_DATA = 1_000_000


class EventTypeSpec(Spec):
    """One event type. Exactly one of `schema` and `avro` is there."""

    type: EventType
    json_schema: Annotated[Any, Field(alias="schema", exclude_if=lambda told: told is None)] = None
    avro: Annotated[Any, Field(exclude_if=lambda told: told is None)] = None
    compatibility: Literal["backward", "none"] = "backward"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if ("json_schema" in self.model_fields_set) == ("avro" in self.model_fields_set):
            raise fault("an event type has either a `schema`, which is JSON Schema, or an `avro`, which is Avro")
        try:
            self.compiled  # noqa: B018 - it is kept
        except SchemaFault as wrong:
            raise fault(f"the schema cannot be taken: {wrong}", path=self.path_of(wrong.path)) from wrong
        return self

    def path_of(self, path: Path) -> Path:
        """The path of a part of the schema within the declaration."""
        return ("schema", *path) if self.avro is None else ("avro", *path)

    @cached_property
    def words(self) -> Schema:
        """The schema in the words of JSON Schema. Raises SchemaFault."""
        found: Schema = self.json_schema if self.avro is None else words_of(self.avro)
        return found

    @cached_property
    def compiled(self) -> EventSchema:
        words = self.words
        try:
            return EventSchema(words)
        except SchemaFault as wrong:
            raise wrong if self.avro is None else SchemaFault(str(wrong)) from wrong

    def narrowed(self, before: "EventTypeSpec") -> Path | None:
        """Where this takes less than the version before; None where it takes as much."""
        return narrowed(before.words, self.words)

    @property
    def takes_everything(self) -> bool:
        return self.words is True or self.words == {}

    @property
    def limit(self) -> int | None:
        """Data of how many bytes can be checked, where that is less than a door takes."""
        return self.compiled.largest if self.compiled.largest < _LARGEST_DATA else None
