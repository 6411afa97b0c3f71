"""Which triggers would take an event, and why the others would not: asked by hand, and nothing comes of it."""

from typing import Any

import msgspec
from aiohttp import web

from processors.gateway.bodies import read_body, require_json
from processors.gateway.fields import read_fields
from processors.gateway.parts import Parts, json_response
from processors.ports.catalog import CatalogSnapshot
from processors.ports.tokens import READ
from processors.runtime.event_schemas import unfitness
from processors.runtime.explaining import Verdict, explain
from processors.runtime.new_runs import iso
from schemas.envelope import Envelope, checked
from schemas.errors import Refused
from schemas.ids import new_event_id


class TestedEvent(msgspec.Struct, forbid_unknown_fields=True):
    """An envelope of which only `type` and `data` have to be there."""

    __test__ = False

    type: str
    data: msgspec.Raw
    id: str | None = None
    idempotency_key: str | None = None
    partition_key: str | None = None
    occurred_at: str | None = None
    attempt: int = 1
    trigger_id: str | None = None
    project_id: str | None = None
    correlation_id: str | None = None
    operation_version: int = 1
    redrive_count: int = 0


class TriggerTests:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def test(self, request: web.Request) -> web.StreamResponse:
        parts = self._parts
        token = await parts.access.require(request, READ)
        require_json(request)
        body = await read_body(request, parts.limits.body, parts.limits.body_seconds)
        fields = read_fields(body, TestedEvent)
        if fields.project_id not in (None, token.project_id):
            raise Refused(
                "E_INVALID_PARAMETER", f"the event is of another project than the token's, {token.project_id}"
            )
        now = parts.door.now()
        event_id = fields.id or new_event_id(int(now.timestamp() * 1000))
        key = fields.idempotency_key or event_id
        envelope = checked(
            Envelope(
                id=event_id,
                type=fields.type,
                idempotency_key=key,
                partition_key=fields.partition_key or key,
                occurred_at=fields.occurred_at or iso(now),
                data=bytes(fields.data).decode(),
                attempt=fields.attempt,
                trigger_id=fields.trigger_id,
                project_id=token.project_id,
                correlation_id=fields.correlation_id,
                operation_version=fields.operation_version,
                redrive_count=fields.redrive_count,
            )
        )
        snapshot = await parts.current.get()
        told = [_document(one) for one in explain(snapshot, envelope, now)]
        schema = _schema_document(snapshot, envelope)
        return json_response({"event_type": envelope.type, "schema": schema, "triggers": told})


def _schema_document(snapshot: CatalogSnapshot, envelope: Envelope) -> dict[str, Any] | None:
    """The version of the type's schema, and whether the data fits; None where the type has none."""
    declared = snapshot.event_types.get((envelope.project_id, envelope.type))
    if declared is None:
        return None
    unfit = unfitness(snapshot, envelope)
    why = {} if unfit is None else {"code": unfit.code, "why": unfit.message, "path": unfit.details["path"]}
    return {"version": declared.version, "fits": unfit is None, **why}


def _document(verdict: Verdict) -> dict[str, Any]:
    trigger, run = verdict.trigger, verdict.run
    told: dict[str, Any] = {
        "trigger_id": trigger.trigger_id,
        "type": trigger.type,
        "workflow_id": trigger.workflow_id,
        "fires": run is not None,
        "why": verdict.why,
    }
    if verdict.code is not None:
        told["code"] = verdict.code
    if run is not None:
        told |= {"version": run.version, "queue_id": run.queue_id, "lane": run.lane, "stale_at": run.stale_at}
    return told
