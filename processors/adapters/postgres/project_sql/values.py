"""Values between JSON and the project's database: bound by their JSON type, read without loss.

What JSON lacks comes as the text that Postgres prints: numeric, times, uuid, bytea and all other types.
Objects, and lists that hold more than one plain type, are bound as jsonb; other lists as arrays.
"""

from typing import Any

from psycopg import AsyncConnection
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb, set_json_dumps, set_json_loads
from psycopg.types.string import TextLoader

from schemas import strict_json

_AS_TEXT = frozenset(
    {
        *("numeric", "date", "time", "timetz", "interval", "uuid", "bytea", "inet", "cidr", "record"),
        *("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange"),
        *("int4multirange", "int8multirange", "nummultirange", "datemultirange", "tsmultirange", "tstzmultirange"),
    }
)
_AS_INSTANT = ("timestamp", "timestamptz")
_ARRAY_TYPES = (str, int, float, bool)


class _InstantLoader(Loader):
    """`2026-07-19 14:02:11+00` as `2026-07-19T14:02:11+00`; `infinity` stays what it is."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode().replace(" ", "T", 1)


def prepare_values(connection: AsyncConnection[TupleRow]) -> None:
    """Make a connection read and write values this way."""
    adapters = connection.adapters
    for name in _AS_TEXT:
        adapters.register_loader(name, TextLoader)
    for name in _AS_INSTANT:
        adapters.register_loader(name, _InstantLoader)
    set_json_loads(_read_json, connection)
    set_json_dumps(strict_json.encode, connection)


def bindable(value: Any) -> Any:
    """A rendered JSON value as the driver binds it."""
    if isinstance(value, dict):
        return Jsonb(value)
    if isinstance(value, list):
        kinds = {type(item) for item in value if item is not None}
        is_plain = len(kinds) <= 1 and kinds.issubset(_ARRAY_TYPES)
        return value if is_plain else Jsonb(value)
    return value


def _read_json(data: str | bytes) -> Any:
    return strict_json.decode(data.encode() if isinstance(data, str) else bytes(data))
