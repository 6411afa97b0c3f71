"""A schema registry of Confluent's kind, by the client of confluent-kafka.

That client blocks, so each question is asked in a thread; numbers never change their meaning, so each is asked once,
and the last ones that were used are kept. What it says of its addresses stays in the log.
"""

import asyncio
from collections import OrderedDict

import structlog
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

from schemas.confluent import WriterSchema
from schemas.errors import Refused, Unavailable

_MOST_KEPT = 1000
_NOT_FOUND = 404
_TIMEOUT_SECONDS = 5
_log = structlog.get_logger("registry")


class SchemaRegistry:
    """Implements `Schemas`. The address may hold a user and a password."""

    def __init__(self, url: str) -> None:
        """Raises Refused E_CONFIG."""
        try:
            self._client = SchemaRegistryClient({"url": url, "timeout": _TIMEOUT_SECONDS, "max.retries": 1})
        except (TypeError, ValueError) as exc:
            raise Refused("E_CONFIG", f"schema_registry_url: {exc}") from exc
        self._known: OrderedDict[int, WriterSchema | Refused] = OrderedDict()

    def close(self) -> None:
        """Let go of its connections."""
        self._client.close()

    async def writer(self, number: int) -> WriterSchema:
        found = self._known.get(number)
        if found is None:
            found = await self._asked(number)
            self._known[number] = found
            if len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(number)
        if isinstance(found, Refused):
            raise found
        return found

    async def _asked(self, number: int) -> WriterSchema | Refused:
        """What is not there now may be tomorrow: that is answered, and not kept."""
        try:
            told = await asyncio.to_thread(self._client.get_schema, number)
        except SchemaRegistryError as exc:
            if exc.http_status_code == _NOT_FOUND:
                raise Refused("E_SCHEMA_UNKNOWN", f"the registry has no schema {number}") from exc
            raise _away(exc) from exc
        except Exception as exc:  # whatever the way there runs into
            raise _away(exc) from exc
        if told.references:
            return Refused("E_SCHEMA_UNKNOWN", f"the schema {number} of the registry refers to others; send it whole")
        try:
            return WriterSchema(number, told.schema_type or "AVRO", told.schema_str or "")
        except Refused as refused:
            return refused


def _away(exc: Exception) -> Unavailable:
    _log.warning("schema_registry_away", reason=f"{type(exc).__name__}: {exc}"[:300])
    return Unavailable("E_SCHEMA_REGISTRY_UNAVAILABLE", "the schema registry cannot be reached")
