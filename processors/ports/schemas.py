"""The schemas that producers write by, kept in a registry of theirs."""

from typing import Protocol

from schemas.confluent import WriterSchema


class Schemas(Protocol):
    async def writer(self, number: int) -> WriterSchema:
        """A schema by its number, which never means another. Raises `Refused` E_SCHEMA_UNKNOWN, and `Unavailable`
        E_SCHEMA_REGISTRY_UNAVAILABLE.
        """
