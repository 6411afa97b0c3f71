"""One schema, compiled: asked of an event's data, and what it says where the data does not fit.

Text is never repeated in what is told, and of names only those that the schema names itself: the message may stand in a
list of dead letters. The pointer is exact, for whoever sent the data.
"""

from collections.abc import Mapping
from typing import Any, Final

from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

from schemas.event_schemas.dialect import Schema, SchemaFault, parts_of
from schemas.event_schemas.locating import Locator, Mismatch
from schemas.event_schemas.telling import TYPES
from schemas.event_schemas.weight import weigh

MOST_WORK: Final = 110_000_000  # parts of a schema times bytes of data: about a second
_DEEPEST: Final = 32  # alternatives within alternatives that are looked into for the place of a fault
_REGEX_BYTES: Final = 16 * 1024  # of a compiled pattern; they take linear time, and have no look-around
_OPTIONS: Final[Mapping[str, Any]] = {
    "validate_formats": True,
    "ignore_unknown_formats": False,
    "pattern_options": RegexOptions(size_limit=_REGEX_BYTES, dfa_size_limit=_REGEX_BYTES),
    "mask": "it",
    "offline": True,
}


class EventSchema:
    """What data of one event type has to be. Pure, and safe to ask of any JSON value."""

    def __init__(self, schema: Schema) -> None:
        """Raises SchemaFault."""
        parts = parts_of(schema)
        self._weight = weigh(parts)
        try:
            self._validator = Draft202012Validator(schema if isinstance(schema, bool) else dict(schema), **_OPTIONS)
        except ValidationError as exc:
            raise SchemaFault(_fault(exc), tuple(exc.instance_path)) from exc
        self._locator = Locator(parts, _OPTIONS)

    @property
    def largest(self) -> int:
        """Data of how many bytes it can be asked of."""
        return MOST_WORK // self._weight

    def mismatch(self, data: Any, size: int) -> Mismatch | None:
        """None where the data fits. `size` is that of its text, in bytes."""
        if size > self.largest:
            most = f"at most {self.largest} bytes, which is what a schema of this kind can be asked of"
            return Mismatch((), (), f"{size} bytes of data", most)
        if self._validator.is_valid(data):
            return None
        return self._locator.find(data, min(_DEEPEST, 1 + self.largest // max(size, 1)))


def _fault(found: ValidationError) -> str:
    if found.kind.name == "format":
        return (
            "this pattern is none that is taken: a regular expression without look-around and back-references, of "
            f"{_REGEX_BYTES // 1024} KiB at most once it is compiled (long repetitions of large sets are more)"
        )
    if found.kind.name == "anyOf":
        return f"known are {', '.join(TYPES)}, and lists of them"
    return f"this cannot stand here: {found.message}"
