"""Event types over HTTP: which are declared, in which version, and the schema of one."""

import json
from typing import Any

from aiohttp import web

from processors.gateway.parts import Parts, json_response
from processors.ports.catalog import EventType
from processors.ports.tokens import READ
from schemas.errors import Refused
from topology.names import hint


class EventTypes:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def list_types(self, request: web.Request) -> web.StreamResponse:
        """Without their schemas."""
        token = await self._parts.access.require(request, READ)
        declared = (await self._parts.current.get()).event_types
        own = [one for (project_id, _), one in sorted(declared.items()) if project_id == token.project_id]
        return json_response([_document(one) for one in own])

    async def show(self, request: web.Request) -> web.StreamResponse:
        token = await self._parts.access.require(request, READ)
        name = request.match_info["type"]
        declared = (await self._parts.current.get()).event_types
        found = declared.get((token.project_id, name))
        if found is None:
            known = [own for project_id, own in declared if project_id == token.project_id]
            raise Refused("E_NOT_FOUND", f"the event type {name[:80]!r} is not declared{hint(name, known)}")
        told = _told(found)
        return json_response({**_document(found), "schema": told["avro"] if "avro" in told else told["schema"]})


def _document(one: EventType) -> dict[str, Any]:
    told = _told(one)
    return {
        "event_type": one.event_type,
        "version": one.version,
        "words": "avro" if "avro" in told else "json-schema",
        "compatibility": told["compatibility"],
    }


def _told(one: EventType) -> dict[str, Any]:
    """The declaration as it is stored; nothing is compiled for it."""
    found: dict[str, Any] = json.loads(one.spec_text)
    return found
