"""Definitions over HTTP: publish, list what is published, sign a body for a webhook trigger."""

from typing import Any

import msgspec
from aiohttp import web

from processors.gateway.bodies import read_body, require_json
from processors.gateway.fields import read_fields, text_parameter, whole_parameter
from processors.gateway.parts import Parts, json_response
from processors.gateway.signing import signed_headers
from processors.ports.catalog import Hook, Trigger
from processors.ports.tokens import READ, WRITE
from processors.runtime.matching import WEBHOOK
from schemas.errors import Refused

_LISTED = "; `a44 automation triggers` lists them"


class PublicationFields(msgspec.Struct, forbid_unknown_fields=True):
    """`files` holds texts by relative path; `dev` makes revisions instead of versions."""

    files: dict[str, str]
    dev: bool = False


class RotationFields(msgspec.Struct, forbid_unknown_fields=True):
    """`end`: which of the secrets so far end at once; see `runtime.rotation`."""

    end: str | None = None


class Publications:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def publish(self, request: web.Request) -> web.StreamResponse:
        parts = self._parts
        token = await parts.access.require(request, WRITE)
        require_json(request)
        body = await read_body(request, parts.limits.publication, parts.limits.body_seconds)
        fields = read_fields(body, PublicationFields)
        if not fields.files:
            raise Refused("E_INVALID_PARAMETER", "no files were sent; `files` holds each file's text by its path")
        result = await parts.catalog.publish(token.project_id, fields.files, dev=fields.dev, actor=token.token_id)
        return json_response(
            {
                "published": [
                    {
                        "kind": item.kind,
                        "id": item.id,
                        **({} if item.version is None else {"version": item.version}),
                        "change": item.change,
                    }
                    for item in result.published
                ],
                "warnings": result.warnings,
                "webhooks": [self._hook(token.project_id, hook) for hook in result.hooks],
            }
        )

    def _hook(self, project_id: str, hook: Hook) -> dict[str, str]:
        """Where a webhook listens. A secret is told once, to the one whose publication made it."""
        shown = {"trigger_id": hook.trigger_id, "path": _path(project_id, hook.trigger_id)}
        if hook.is_new:
            shown["secret"] = self._parts.secrets.own(project_id, hook)
        return shown

    async def workflows(self, request: web.Request) -> web.StreamResponse:
        token = await self._parts.access.require(request, READ)
        snapshot = await self._parts.current.get()
        return json_response(
            [
                {
                    "workflow_id": definition.workflow_id,
                    "version": definition.label,
                    "kind": definition.kind,
                    "published_at": definition.published_at,
                }
                for (project_id, _), definition in sorted(snapshot.latest.items())
                if project_id == token.project_id
            ]
        )

    async def triggers(self, request: web.Request) -> web.StreamResponse:
        token = await self._parts.access.require(request, READ)
        snapshot = await self._parts.current.get()
        return json_response(
            [
                _trigger_document(trigger)
                for (project_id, _), trigger in sorted(snapshot.triggers.items())
                if project_id == token.project_id
            ]
        )

    async def rotate(self, request: web.Request) -> web.StreamResponse:
        """A new secret, told this once; the one before is taken for another while."""
        parts = self._parts
        token = await parts.access.require(request, WRITE)
        body = await read_body(request, parts.limits.body, parts.limits.body_seconds)
        fields = read_fields(body, RotationFields) if body.strip() else RotationFields()
        trigger = await self._webhook(token.project_id, request)
        trigger_id, verify = trigger.trigger_id, trigger.spec.verify
        if verify is not None and verify.secret_ref is not None:
            raise Refused(
                "E_INVALID_PARAMETER",
                f"the secret of {trigger_id} is its sender's: set the new one as {verify.secret_ref}, and the one "
                "before under the name that `oldSecretRef` gives until the sender has gone over",
            )
        made = await parts.catalog.rotate(token.project_id, trigger_id, end=fields.end, actor=token.token_id)
        hook = Hook(trigger_id, made.number, is_new=True, preset=trigger.spec.preset)
        return json_response(
            {
                "trigger_id": trigger_id,
                "path": _path(token.project_id, trigger_id),
                "secret_number": made.number,
                "secret": parts.secrets.own(token.project_id, hook),
                "old_secret_ends_at": None if made.old is None else made.old.ends_at,
            }
        )

    async def misses(self, request: web.Request) -> web.StreamResponse:
        """What a trigger's filter let pass by in the last days, the newest first."""
        token = await self._parts.access.require(request, READ)
        trigger_id = request.match_info["trigger"]
        limit = whole_parameter(request, "limit", 50, 500)
        if (token.project_id, trigger_id) not in (await self._parts.current.get()).triggers:
            raise Refused("E_TRIGGER_NOT_FOUND", f"{trigger_id[:80]!r} is no trigger of this project{_LISTED}")
        found = await self._parts.catalog.misses(token.project_id, trigger_id, limit)
        shown = ("event_id", "event_type", "idempotency_key", "occurred_at", "missed_at")
        return json_response([{name: getattr(one, name) for name in shown} for one in found])

    async def sign(self, request: web.Request) -> web.StreamResponse:
        """Headers for exactly these bytes, as the trigger's sender would make them, valid for the next minutes. The
        secret stays here.

        `timestamp` (Unix seconds) signs for another moment: senders can see how a clock that is off is answered. `key`
        is the delivery's own id, or our header's value.
        """
        parts = self._parts
        token = await parts.access.require(request, WRITE)
        body = await read_body(request, parts.limits.body, parts.limits.body_seconds)
        trigger = await self._webhook(token.project_id, request)
        headers = signed_headers(
            trigger.spec.preset,
            parts.secrets.newest(trigger, parts.door.now()),
            body,
            now=parts.door.now(),
            timestamp=text_parameter(request, "timestamp"),
            key=text_parameter(request, "key"),
        )
        return json_response({**headers, "path": _path(token.project_id, trigger.trigger_id)})

    async def _webhook(self, project_id: str, request: web.Request) -> Trigger:
        """The webhook trigger that the address names. Raises Refused E_TRIGGER_NOT_FOUND."""
        trigger_id = request.match_info["trigger"]
        trigger = (await self._parts.current.get()).triggers.get((project_id, trigger_id))
        if trigger is None or trigger.type != WEBHOOK:
            raise Refused("E_TRIGGER_NOT_FOUND", f"{trigger_id[:80]!r} is no webhook trigger of this project{_LISTED}")
        return trigger


def _path(project_id: str, trigger_id: str) -> str:
    return f"/v1/{project_id}/{trigger_id}"


def _trigger_document(trigger: Trigger) -> dict[str, Any]:
    document: dict[str, Any] = {
        "trigger_id": trigger.trigger_id,
        "type": trigger.type,
        "workflow_id": trigger.workflow_id,
        "version": "latest" if trigger.pinned_version is None else str(trigger.pinned_version),
    }
    if trigger.event_type is not None:
        document["event"] = trigger.event_type
    if trigger.type == WEBHOOK:
        document["path"] = _path(trigger.project_id, trigger.trigger_id)
        document["verify"] = trigger.spec.preset
        document["secrets"] = [{"number": one.number, "ends_at": one.ends_at} for one in trigger.secrets]
    return document
