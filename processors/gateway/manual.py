"""Runs by hand: made and granted in the door's own transaction; the answer may wait for the run's end."""

import hashlib
from functools import partial

import msgspec
from aiohttp import web

from processors.gateway.bodies import read_body, require_json
from processors.gateway.documents import history_document
from processors.gateway.fields import read_fields, seconds_parameter
from processors.gateway.keys import HEADER, key_in_header
from processors.gateway.parts import Parts, json_response
from processors.gateway.sentences import Place
from processors.ports.catalog import CatalogSnapshot
from processors.ports.door import Acceptance, Outcome
from processors.ports.tokens import WRITE
from processors.runtime.event_schemas import check_data
from processors.runtime.new_runs import manual_run
from schemas.errors import Refused
from schemas.ids import new_event_id
from schemas.stored_bodies import standing_for

_EMPTY = msgspec.Raw(b"{}")


class RunFields(msgspec.Struct, forbid_unknown_fields=True):
    """`version` is a label such as `3` or `3-dev.2`; None takes the trigger's. `trigger` names a manual trigger, where
    the workflow has several.
    """

    input: msgspec.Raw = msgspec.field(default_factory=lambda: _EMPTY)
    version: str | int | None = None
    trigger: str | None = None


class ManualRuns:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def start(self, request: web.Request) -> web.StreamResponse:
        parts = self._parts
        token = await parts.access.require(request, WRITE)
        parts.rates.take(token.project_id)
        require_json(request)
        patience = seconds_parameter(request, "wait", parts.limits.wait)
        key = key_in_header(request)
        if key is None:
            raise Refused(
                "E_IDEMPOTENCY_KEY_REQUIRED",
                f"a run by hand needs the header {HEADER}, so that a repeated call makes no second run; "
                "derive the key from what the run is about",
            )
        body = await read_body(request, parts.limits.body, parts.limits.body_seconds)
        fields = read_fields(body, RunFields)
        workflow_id = request.match_info["workflow"]
        answer = await parts.accept_by_catalog(partial(self._acceptance, token.project_id, workflow_id, key, fields))
        is_old = answer.outcome is not Outcome.CREATED  # then it may have ended long ago
        ended = await parts.end_of(answer.run_id, patience, look_first=is_old) if patience and answer.run_id else None
        if ended is None:
            return await parts.told(answer, "header")
        return json_response(history_document(ended, Place(parts.door.now(), ended.attempts)))

    def _acceptance(
        self, project_id: str, workflow_id: str, key: str, fields: RunFields, snapshot: CatalogSnapshot
    ) -> Acceptance:
        now = self._parts.door.now()
        run = manual_run(
            snapshot,
            project_id=project_id,
            workflow_id=workflow_id,
            version=None if fields.version is None else str(fields.version),
            event_id=new_event_id(int(now.timestamp() * 1000)),
            idempotency_key=key,
            occurred_at=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            input_text=bytes(fields.input).decode(),
            trigger_id=fields.trigger,
        )
        check_data(snapshot, project_id, run.event_type, run.input)
        stored = self._parts.body_for_storage(project_id, run.input)
        if stored is not None:
            run = msgspec.structs.replace(run, input=standing_for(stored), input_ref=str(stored.reference))
        return Acceptance(
            project_id=project_id,
            idempotency_key=key,
            key_source="header",
            body_hash=_request_hash(run.workflow_id, fields),
            event_id=run.event_id,
            partition_key=run.partition_key,
            run_id=run.run_id,
            run=run,
            window=self._parts.limits.dedup_window,
            catalog=snapshot.version,
            body=stored,
        )


def _request_hash(workflow_id: str, fields: RunFields) -> bytes:
    """What the key stands for: this workflow, the version and the trigger that were named, and the input as sent."""
    version = "" if fields.version is None else str(fields.version)
    trigger = () if fields.trigger is None else (fields.trigger.encode(),)
    said = (b"manual", workflow_id.encode(), version.encode(), fields.input, *trigger)
    return hashlib.sha256(b"\0".join(said)).digest()
