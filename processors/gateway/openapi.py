"""The API as an OpenAPI 3.1 document: every address of the gateway, what it takes and how it may answer.

Served at `/v1/automation/openapi.json`. What a body may hold is read off the very structs that the doors decode with,
so the two cannot differ; tests hold the addresses to the routes, and send what the document allows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from aiohttp import web

from processors.engine.moves import RunStatus
from processors.gateway.dead_letters import LETTERS_A_PAGE
from processors.gateway.event_forms import NDJSON, EventFields
from processors.gateway.event_tail import EVENTS_A_PAGE
from processors.gateway.keys import HEADER as KEY_HEADER
from processors.gateway.manual import RunFields
from processors.gateway.problems import PROBLEM, REQUEST_ID
from processors.gateway.projects import PROJECTS_A_PAGE, ProjectFields
from processors.gateway.publications import PublicationFields, RotationFields
from processors.gateway.redrives import REDRIVES_A_PAGE, RedriveFields, StopFields
from processors.gateway.run_views import CancelFields
from processors.gateway.trigger_tests import TestedEvent
from processors.ports.run_queries import RunFilter
from schemas.cloudevents import BATCH, STRUCTURED

Schema = Mapping[str, Any]

JSON: Final = "application/json"
API: Final = "/v1/automation"
_TEXT: Final = {"type": "string"}
_NAME: Final = {"type": "string", "minLength": 1}
_MOMENT: Final = {"type": "string", "format": "date-time"}
_SPAN: Final = {"type": "string", "pattern": "^([0-9]{1,9}(s|m|h|d))?$"}


def _object(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


@dataclass(frozen=True, slots=True)
class Operation:
    """One call. `body` is a struct that the door decodes with, or a media type whose bytes are taken as they are;
    `takes_many` says that an array of them is taken too, `other_bodies` are further media types.
    `query` and `headers` are parameters by name, those in `required` must be given. `answers` are the successful
    ones by status: a media type, or the schema of a JSON document. `problems` are the refusals it may give.
    """

    method: str
    path: str
    summary: str
    answers: Mapping[int, Schema | str]
    scope: str | None = "read"
    body: type | str | None = None
    other_bodies: Mapping[str, Schema] = field(default_factory=dict)
    takes_many: bool = False
    is_body_needed: bool = True
    query: Mapping[str, Schema] = field(default_factory=dict)
    headers: Mapping[str, Schema] = field(default_factory=dict)
    required: Sequence[str] = ()
    problems: Sequence[int] = (400, 401, 403, 404)


_KEY = {KEY_HEADER: {"type": "string", "minLength": 1, "maxLength": 255}}
_BODY_PROBLEMS = (400, 401, 403, 404, 408, 409, 413, 415, 422, 429)
_ACCEPTED = _object(
    {"event_id": _TEXT, "status": {"enum": ["created", "deduplicated"]}, "key_source": _TEXT},
    {"run_id": _TEXT, "state": _TEXT, "key_age_seconds": {"type": "number"}},
)
_BATCH = _object(
    {
        **{outcome: {"type": "integer"} for outcome in ("created", "deduplicated", "conflict", "refused")},
        "results": _list(_object({"status": _TEXT}, {"event_id": _TEXT, "error": {"type": "object"}})),
    }
)
_CLOUD_EVENT = _object({"specversion": {"const": "1.0"}, "id": _NAME, "source": _NAME, "type": _NAME}, {"data": {}})
_EVENT_FORMS = {NDJSON[0]: _TEXT, STRUCTURED: _CLOUD_EVENT, BATCH: _list({})}
_EVENT_TYPE = _object(
    {"event_type": _TEXT, "version": {"type": "integer"}, "words": {"enum": ["json-schema", "avro"]},
     "compatibility": {"enum": ["backward", "none"]}}
)  # fmt: skip
_RUN = _object(
    {"run_id": _TEXT, "state": _TEXT, "where": _TEXT},
    {"attempts": _list({"type": "object"}), "late_attempts": _list({"type": "object"}), "input": {}, "result": {}},
)

_LETTER = _object(
    {"dead_letter_id": _TEXT, "queue_id": _TEXT, "reason": _TEXT, "error_code": _TEXT, "summary": _TEXT},
    {
        "attempts": _list({"type": "object"}),
        "envelope": {},
        "raw": {"type": ["string", "null"]},
        "record": {"type": "object"},
        "raw_key": {"type": ["string", "null"]},
        "raw_headers": _list({"type": "array"}),
    },
)
_LETTERS: Mapping[str, Schema] = {
    "queue": _TEXT, "error_code": _TEXT, "since": {"anyOf": [_SPAN, _MOMENT]},
    "unowned": {"type": "boolean", "default": False},
}  # fmt: skip
_REDRIVE = _object(
    {"redrive_id": {"type": ["string", "null"]}, "letters": {"type": "integer"}, "skipped": {"type": "object"}},
)
_ORDER = _object(
    {"redrive_id": _TEXT, "queue_id": _TEXT, "state": {"enum": ["under_way", "done", "stopped"]},
     "letters": {"type": "integer"}, "redriven": {"type": "integer"}, "refused": {"type": "integer"},
     "waiting": {"type": "integer"}, "rate": {"type": "number"}, "operator": _TEXT, "reason": _TEXT},
)  # fmt: skip
_PROJECT = _object(
    {"project_id": _TEXT, "dedup_window_hours": {"type": ["number", "null"]},
     "events_per_second": {"type": ["number", "null"]}, "redrive_rate": {"type": ["number", "null"]},
     "in_force": {"type": "object"}, "updated_at": {"type": ["string", "null"]}},
)  # fmt: skip

OPERATIONS: Final[Sequence[Operation]] = (
    Operation("get", "/healthz", "The process answers", {200: _object({"status": _TEXT})}, None, problems=()),
    Operation("get", "/readyz", "Postgres answers too", {200: _object({"status": _TEXT})}, None, problems=(503,)),
    Operation("get", f"{API}/openapi.json", "This document", {200: {"type": "object"}}, None, problems=()),
    Operation(
        "get", f"{API}/whoami", "The project, name and scopes of the token",
        {200: _object({"project_id": _TEXT, "token_id": _TEXT, "scopes": _list(_TEXT)})},
    ),
    Operation(
        "post", f"{API}/publish", "Publish workflows and triggers; all of them, or none",
        {200: _object({"published": _list({"type": "object"}), "warnings": _list({}), "webhooks": _list(
            _object({"trigger_id": _TEXT, "path": _TEXT}, {"secret": _TEXT}))})},
        "write", PublicationFields, problems=_BODY_PROBLEMS,
    ),
    Operation(
        "get", f"{API}/workflows", "The newest version of each workflow",
        {200: _list(_object({"workflow_id": _TEXT, "version": _TEXT, "kind": {"enum": ["yaml", "code"]}}))},
    ),
    Operation(
        "get", f"{API}/triggers", "The triggers in force",
        {200: _list(_object({"trigger_id": _TEXT, "type": _TEXT, "workflow_id": _TEXT, "version": _TEXT}))},
    ),
    Operation(
        "post", f"{API}/triggers/{{trigger}}/sign", "Headers that sign exactly these bytes for a webhook trigger",
        {200: _object({"path": _TEXT}, {"A44-Timestamp": _TEXT, "A44-Signature": _TEXT})},
        "write", "application/octet-stream", query={
            "timestamp": {"type": "string", "pattern": "^[0-9]{1,15}$"}, "key": _KEY[KEY_HEADER]},
        is_body_needed=False, problems=_BODY_PROBLEMS,
    ),
    Operation(
        "get", f"{API}/triggers/{{trigger}}/misses", "What a trigger's filter let pass by, where it keeps that",
        {200: _list(_object({"event_id": _TEXT, "event_type": _TEXT, "idempotency_key": _TEXT, "occurred_at": _TEXT,
                             "missed_at": _TEXT}))},
        query={"limit": {"type": "integer", "minimum": 1, "default": 50}},
    ),
    Operation(
        "post", f"{API}/triggers/test", "What each trigger would do with an event; nothing is started",
        {200: _object({"event_type": _TEXT, "schema": {"anyOf": [{"type": "null"}, _object(
            {"version": {"type": "integer"}, "fits": {"type": "boolean"}},
            {"code": _TEXT, "why": _TEXT, "path": _TEXT})]}, "triggers": _list(_object(
            {"trigger_id": _TEXT, "type": _TEXT, "workflow_id": _TEXT, "fires": {"type": "boolean"}, "why": _TEXT}))})},
        "read", TestedEvent, problems=_BODY_PROBLEMS,
    ),
    Operation(
        "post", f"{API}/triggers/{{trigger}}/rotate", "Make a webhook trigger's next secret; the one before lives 48 h",
        {200: _object({"trigger_id": _TEXT, "path": _TEXT, "secret": _TEXT, "secret_number": {"type": "integer"},
                       "old_secret_ends_at": {"type": ["string", "null"]}})},
        "write", RotationFields, is_body_needed=False, problems=_BODY_PROBLEMS,
    ),
    Operation("get", f"{API}/event-types", "The event types that are declared", {200: _list(_EVENT_TYPE)}),
    Operation(
        "get", f"{API}/event-types/{{type}}", "One event type, with its schema as it was declared",
        {200: {"allOf": [_EVENT_TYPE, _object({"schema": {}})]}},
    ),
    Operation(
        "post", f"{API}/events", "Publish an event, or many at once", {202: _ACCEPTED, 200: _ACCEPTED, 207: _BATCH},
        "write", EventFields, _EVENT_FORMS, takes_many=True, headers=_KEY, problems=_BODY_PROBLEMS,
    ),
    Operation(
        "get", f"{API}/events", "Events that were taken, the newest first; live to whoever accepts text/event-stream",
        {200: _object({"events": _list(_object({"event_id": _TEXT, "accepted_at": _TEXT, "runs": _list({})})),
                       "next": {"type": ["string", "null"]}})},
        query={
            "type": _TEXT, "trigger": _TEXT, "since": {"anyOf": [_SPAN, _MOMENT]},
            "limit": {"type": "integer", "minimum": 1, "default": EVENTS_A_PAGE},
            "after": {"type": "string", "pattern": "^evt_[0-7][0-9A-HJKMNP-TV-Z]{25}$"},
        },
    ),
    Operation(
        "get", f"{API}/events/{{event}}", "The runs that an event has made",
        {200: _object({"event_id": _TEXT, "taken_at": {"type": ["string", "null"]}, "runs": _list(
            _object({"run_id": _TEXT, "trigger_id": _TEXT, "workflow_id": _TEXT, "version": _TEXT, "state": _TEXT}))})},
    ),
    Operation(
        "post", f"{API}/workflows/{{workflow}}/runs", "Start a run; with `wait`, answered by its end",
        {202: _ACCEPTED, 200: {"anyOf": [_ACCEPTED, _RUN]}},
        "write", RunFields, headers=_KEY, required=[KEY_HEADER], query={"wait": {"type": "number", "minimum": 0}},
        problems=_BODY_PROBLEMS,
    ),
    Operation(
        "get", f"{API}/runs", "Runs, the newest first",
        {200: _object({"total": {"type": "integer"}, "runs": _list(_object({"run_id": _TEXT, "state": _TEXT})),
                       "next": {"type": ["string", "null"]}})},
        query={
            "state": {"enum": [*RunStatus]}, "step": _TEXT, "workflow": _TEXT,
            "since": {"anyOf": [_SPAN, _MOMENT]},
            "limit": {"type": "integer", "minimum": 1, "default": RunFilter().limit}, "after": _TEXT,
        },
    ),
    Operation(
        "get", f"{API}/runs/{{run}}", "One run, with its attempts; with `wait`, once it has ended", {200: _RUN},
        query={"wait": {"type": "number", "minimum": 0}},
    ),
    Operation(
        "get", f"{API}/runs/{{run}}/log", "A run's records as server-sent events", {200: "text/event-stream"},
        query={"follow": {"type": "boolean", "default": True}},
        headers={"Last-Event-ID": {"type": "string", "pattern": "^[0-9]{1,9}\\.[0-9]{1,9}$"}},
    ),
    Operation(
        "post", f"{API}/runs/{{run}}/cancel", "Ask a run to end",
        {202: _object({"run_id": _TEXT, "status": {"const": "cancelling"}})},
        "write", CancelFields, is_body_needed=False, problems=_BODY_PROBLEMS,
    ),
    Operation(
        "get", f"{API}/dead-letters", "Dead letters, the newest first",
        {200: _object({"dead_letters": _list(_LETTER), "next": {"type": ["string", "null"]}})},
        query={**_LETTERS, "limit": {"type": "integer", "minimum": 1, "default": LETTERS_A_PAGE}, "after": _TEXT},
    ),
    Operation(
        "get", f"{API}/dead-letters/stats", "Dead letters of a queue, counted by their error code",
        {200: _object({"queue_id": _TEXT, "total": {"type": "integer"}, "codes": _list(
            _object({"error_code": _TEXT, "reason": _TEXT, "count": {"type": "integer"}}))})},
        query=_LETTERS, required=["queue"],
    ),
    Operation(
        "post", f"{API}/dead-letters/redrive", "Run dead letters again, or only say what would come of it",
        {202: _REDRIVE, 200: _REDRIVE}, "write", RedriveFields, problems=_BODY_PROBLEMS,
    ),
    Operation(
        "get", f"{API}/dead-letters/redrives", "Orders to redrive with their progress, the newest first",
        {200: _object({"redrives": _list(_ORDER), "next": {"type": ["string", "null"]}})},
        query={"under_way": {"type": "boolean", "default": False}, "after": _TEXT,
               "limit": {"type": "integer", "minimum": 1, "default": REDRIVES_A_PAGE}},
    ),
    Operation(
        "post", f"{API}/dead-letters/redrives/{{redrive}}/stop", "Stop an order; what it has redriven stays",
        {200: _ORDER}, "write", StopFields, is_body_needed=False, problems=_BODY_PROBLEMS,
    ),
    Operation(
        "get", f"{API}/dead-letters/{{letter}}", "One dead letter; `whole`: with what it keeps, audited",
        {200: _LETTER},
        query={"attempts": {"type": "boolean", "default": False}, "whole": {"type": "boolean", "default": False}},
    ),
    Operation(
        "get", f"{API}/projects", "The known projects with the figures that are their own, by name",
        {200: _object({"projects": _list(_PROJECT), "next": {"type": ["string", "null"]}})}, "operator",
        query={"limit": {"type": "integer", "minimum": 1, "default": PROJECTS_A_PAGE}, "after": _TEXT},
    ),
    Operation("get", f"{API}/projects/{{project}}", "The figures of a project, and those in force", {200: _PROJECT}),
    Operation(
        "post", f"{API}/projects/{{project}}", "Set figures of a project; null takes the installation's",
        {200: _PROJECT}, "operator", ProjectFields, problems=_BODY_PROBLEMS,
    ),
    Operation(
        "post", "/v1/{project}/{trigger}", "A webhook: signed bytes, verified before they are read",
        {202: {"type": "object"}, 200: {"type": "object"}},
        None, JSON, headers={**_KEY, "A44-Timestamp": _TEXT, "A44-Signature": _TEXT},
        problems=(400, 401, 404, 405, 408, 409, 413, 415, 422, 429),
    ),
)  # fmt: skip


def document(version: str) -> dict[str, Any]:
    """The whole document, as JSON values."""
    bodies = [one.body for one in OPERATIONS if isinstance(one.body, type)]
    schemas, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        schema = schemas[bodies.index(one.body)] if isinstance(one.body, type) else {}
        paths.setdefault(one.path, {})[one.method] = _operation(one, schema)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Automation", "version": version},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


_PROBLEM = _object(
    {"type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT, "code": _TEXT, "request_id": _TEXT},
    {"place": {}},
)


def _operation(one: Operation, body: Schema) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": _name(one),
        "summary": one.summary,
        "parameters": [*_parameters(one)],
        "responses": {str(status): _response(answer) for status, answer in one.answers.items()},
    }
    for status in (*one.problems, 500, 503):
        told["responses"][str(status)] = {"description": "a problem", "content": {PROBLEM: {"schema": _REFERENCE}}}
    if one.scope is not None:
        told["security"] = [{"token": [one.scope]}]
    if one.body is not None:
        media = one.body if isinstance(one.body, str) else JSON
        whole = {"anyOf": [body, _list({})]} if one.takes_many else body
        forms = {media: whole, **one.other_bodies}
        content = {name: {"schema": schema} for name, schema in forms.items()}
        told["requestBody"] = {"required": one.is_body_needed, "content": content}
    return told


_REFERENCE = {"$ref": "#/components/schemas/Problem"}


def _name(one: Operation) -> str:
    words = one.path.removeprefix(API).replace("{", "").replace("}", "").replace(".json", "").split("/")
    return "_".join([one.method, *(word for word in words if word)])


def _parameters(one: Operation) -> Iterator[dict[str, Any]]:
    for part in one.path.split("/"):
        if part.startswith("{"):
            yield {"name": part[1:-1], "in": "path", "required": True, "schema": _TEXT}
    for place, told in (("query", one.query), ("header", one.headers)):
        for name, schema in told.items():
            yield {"name": name, "in": place, "required": name in one.required, "schema": schema}


def _response(answer: Schema | str) -> dict[str, Any]:
    media, schema = (answer, _TEXT) if isinstance(answer, str) else (JSON, answer)
    return {
        "description": "done",
        "headers": {REQUEST_ID: {"schema": _TEXT}},
        "content": {media: {"schema": schema}},
    }


class ApiDocument:
    """Answers with the document, put together once."""

    def __init__(self, version: str) -> None:
        self._body = msgspec.json.encode(document(version))

    async def show(self, _: web.Request) -> web.StreamResponse:
        return web.Response(body=self._body, content_type=JSON)
