"""Projects over HTTP: whoever may read sees the figures of its own; an operator sees and sets those of all."""

from typing import Any

import msgspec
from aiohttp import web

from processors.gateway.bodies import read_body, require_json
from processors.gateway.fields import read_fields, text_parameter, whole_parameter
from processors.gateway.limits import Limits
from processors.gateway.parts import Parts, json_response
from processors.ports.projects import (
    FIGURES,
    HIGHEST_RATE,
    HIGHEST_REDRIVE_RATE,
    LONGEST_WINDOW,
    LOWEST_REDRIVE_RATE,
    Figures,
    Projects,
)
from processors.ports.tokens import OPERATOR, READ
from schemas.errors import Refused
from schemas.ids import is_project_id

PROJECTS_A_PAGE = 100
_HOUR = 3600.0
_MAX_TEXT = 1000


class ProjectFields(msgspec.Struct, forbid_unknown_fields=True):
    """What is left out stays as it is; null takes the installation's."""

    dedup_window_hours: float | msgspec.UnsetType | None = msgspec.UNSET
    events_per_second: float | msgspec.UnsetType | None = msgspec.UNSET
    redrive_rate: float | msgspec.UnsetType | None = msgspec.UNSET
    reason: str = ""


class ProjectFigures:
    def __init__(self, parts: Parts, projects: Projects) -> None:
        self._parts = parts
        self._projects = projects

    async def list_projects(self, request: web.Request) -> web.StreamResponse:
        """One row more than the page is asked for: it tells whether there is a next page."""
        await self._parts.access.require(request, OPERATOR)
        limit = whole_parameter(request, "limit", PROJECTS_A_PAGE, self._parts.limits.page)
        found = await self._projects.list_projects(text_parameter(request, "after"), limit + 1)
        page = [_document(one, self._parts.limits) for one in found[:limit]]
        return json_response({"projects": page, "next": page[-1]["project_id"] if len(found) > limit else None})

    async def show(self, request: web.Request) -> web.StreamResponse:
        project_id = request.match_info["project"]
        token = await self._parts.access.require(request, READ)
        if project_id != token.project_id:
            await self._parts.access.require(request, OPERATOR)
        found = await self._projects.find(project_id) if is_project_id(project_id) else None
        return json_response(_document(_known(found, project_id), self._parts.limits))

    async def change(self, request: web.Request) -> web.StreamResponse:
        parts, project_id = self._parts, request.match_info["project"]
        token = await parts.access.require(request, OPERATOR)
        require_json(request)
        fields = read_fields(await read_body(request, parts.limits.body, parts.limits.body_seconds), ProjectFields)
        figures = _checked(fields)
        found = None
        if is_project_id(project_id):
            found = await self._projects.change(project_id, figures, token.token_id, fields.reason)
        return json_response(_document(_known(found, project_id), parts.limits))


def _checked(fields: ProjectFields) -> dict[str, float | None]:
    """What is to be set. Raises Refused E_INVALID_PARAMETER."""
    bounds = (
        ("dedup_window_hours", fields.dedup_window_hours, 0.0, LONGEST_WINDOW, "hours above 0"),
        ("events_per_second", fields.events_per_second, 0.0, HIGHEST_RATE, "events a second above 0"),
        (
            "redrive_rate",
            fields.redrive_rate,
            LOWEST_REDRIVE_RATE,
            HIGHEST_REDRIVE_RATE,
            f"letters a second from {LOWEST_REDRIVE_RATE:g}",
        ),
    )
    told: dict[str, float | None] = {}
    for name, value, least, most, wanted in bounds:
        if value is msgspec.UNSET:
            continue
        if isinstance(value, float) and not (value > 0 and least <= value <= most):
            raise Refused(
                "E_INVALID_PARAMETER",
                f"{name} is {value:g}; expected {wanted}, at most {most:.0f}, or null for the installation's",
                details={"field": name},
            )
        told[name] = value if isinstance(value, float) else None
    if not told:
        raise Refused(
            "E_INVALID_PARAMETER", f"nothing is to be set; expected {' or '.join(name for name, *_ in bounds)}"
        )
    if len(fields.reason) > _MAX_TEXT or "\0" in fields.reason:
        raise Refused(
            "E_INVALID_PARAMETER",
            f"the reason has {len(fields.reason)} characters; expected at most {_MAX_TEXT}, without NUL",
        )
    return told


def _known(found: Figures | None, project_id: str) -> Figures:
    if found is None:
        raise Refused(
            "E_PROJECT_NOT_FOUND",
            f"there is no project {project_id[:80]!r}: it has neither a token nor a workflow; "
            "`a44 automation project list` lists those that are known",
        )
    return found


def _document(figures: Figures, limits: Limits) -> dict[str, Any]:
    """Its own figures, and those that count: where it has none, the installation's."""
    own = {name: getattr(figures, name) for name in FIGURES}
    in_force = {
        **own,
        "dedup_window_hours": figures.dedup_window_hours or limits.dedup_window / _HOUR,
        "redrive_rate": figures.redrive_rate or limits.redrive_rate,
    }
    return {
        "project_id": figures.project_id,
        **own,
        "in_force": in_force,
        "updated_at": figures.updated_at,
    }
