"""Runs over HTTP: the list, one run, and the wish that one may end."""

import msgspec
from aiohttp import web

from processors.engine.moves import RunStatus
from processors.gateway.bodies import read_body
from processors.gateway.documents import find_run, run_document
from processors.gateway.fields import (
    read_fields,
    seconds_parameter,
    since_parameter,
    text_parameter,
    whole_parameter,
)
from processors.gateway.parts import Parts, json_response
from processors.ports.run_queries import RunFilter
from processors.ports.tokens import READ, WRITE
from schemas.errors import Refused
from schemas.ids import is_run_id

_PAGE = 50
_MAX_REASON = 1000


class CancelFields(msgspec.Struct, forbid_unknown_fields=True):
    reason: str = ""


class RunViews:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def list_runs(self, request: web.Request) -> web.StreamResponse:
        parts = self._parts
        token = await parts.access.require(request, READ)
        wanted = RunFilter(
            state=_state(text_parameter(request, "state")),
            step=text_parameter(request, "step"),
            workflow_id=text_parameter(request, "workflow"),
            since=since_parameter(request, "since", parts.door.now()),
            limit=whole_parameter(request, "limit", _PAGE, parts.limits.page),
            after=_run_id(text_parameter(request, "after")),
        )
        return json_response(await parts.queries.list_runs(token.project_id, wanted))

    async def show(self, request: web.Request) -> web.StreamResponse:
        """One run as it stands; with `wait`, once it has ended or when so many seconds have gone by."""
        parts = self._parts
        token = await parts.access.require(request, READ)
        run_id, patience = request.match_info["run"], seconds_parameter(request, "wait", parts.limits.wait)
        if patience:
            await find_run(parts, token.project_id, run_id)  # another project's run is none, and nothing to wait for
            await parts.end_of(run_id, patience, look_first=True)
        return json_response(await run_document(parts, token.project_id, run_id))

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        parts = self._parts
        token = await parts.access.require(request, WRITE)
        run_id = request.match_info["run"]
        body = await read_body(request, parts.limits.body, parts.limits.body_seconds)
        reason = read_fields(body, CancelFields).reason[:_MAX_REASON] if body.strip() else ""
        if not is_run_id(run_id):
            raise Refused(
                "E_RUN_NOT_FOUND", f"{run_id[:80]!r} is no run of this project; `a44 automation runs` lists them"
            )
        await parts.queries.request_cancel(token.project_id, run_id, reason, token.token_id)
        return json_response({"run_id": run_id, "status": "cancelling"}, 202)


def _state(told: str | None) -> str | None:
    if told is not None and told not in set(RunStatus):
        known = ", ".join(RunStatus)
        raise Refused("E_INVALID_PARAMETER", f"state={told[:40]} is not known; states are {known}")
    return told


def _run_id(told: str | None) -> str | None:
    if told is not None and not is_run_id(told):
        raise Refused("E_INVALID_PARAMETER", f"after={told[:40]} is not a run id; take `next` of the page before")
    return told
