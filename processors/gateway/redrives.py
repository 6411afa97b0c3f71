"""Dead letters that run again: planned over the queue as it is now, confirmed, and left to the scheduler's pace."""

import asyncio
import math
from typing import Any

import msgspec
from aiohttp import web

from processors.gateway.bodies import read_body, require_json
from processors.gateway.dead_letters import check_queue, is_storable
from processors.gateway.fields import flag_parameter, read_fields, text_parameter, whole_parameter
from processors.gateway.parts import Parts, json_response
from processors.ports.redrives import Order, Redrives, Started
from processors.ports.tokens import READ, WRITE, Token
from processors.runtime.redriving import MOST_REDRIVES, Plan, Rules, letter_filter, letters_a_second
from schemas.errors import Refused
from schemas.ids import redrive_id

MOST_SCANNED = 100_000  # letters that one order looks at; the rest waits for the next
REDRIVES_A_PAGE = 50
_PAGE = 1000
_PAGE_OF_ENVELOPES = 50  # of up to a megabyte each
_MOST = 50_000
_MAX_TEXT = 1000


class RedriveFields(msgspec.Struct, forbid_unknown_fields=True):
    """`filter` is CEL over a letter, `rate` such as `20/s`, `max` the most letters to redrive."""

    queue: str
    filter: str
    max: int
    rate: str = "10/s"
    reason: str = ""
    dry_run: bool = False
    allow_stale: bool = False


class StopFields(msgspec.Struct, forbid_unknown_fields=True):
    """`reason` is kept in the audit log with the token's id."""

    reason: str = ""


class RedriveOrders:
    def __init__(self, parts: Parts, redrives: Redrives) -> None:
        self._parts = parts
        self._redrives = redrives

    async def redrive(self, request: web.Request) -> web.StreamResponse:
        """202 with the order; 200 with the plan alone on a dry run."""
        parts = self._parts
        token = await parts.access.require(request, WRITE)
        require_json(request)
        body = await read_body(request, parts.limits.body, parts.limits.body_seconds)
        fields = _checked(read_fields(body, RedriveFields))
        rate = letters_a_second(fields.rate)
        plan = await self._plan(token.project_id, fields)
        if fields.dry_run:
            own = await self._redrives.own_cap(token.project_id)
            allowed = min(rate, parts.limits.redrive_rate if own is None else own)
            return json_response(_document(fields, plan, None, Started(len(plan.letters), allowed)))
        _confirm(fields, plan)
        order = self._order(token, fields, plan, rate)
        started = await self._redrives.start(order)
        if not started.letters:
            raise _nothing(fields, plan, "another redrive took them a moment ago")
        return json_response(_document(fields, plan, order.redrive_id, started), 202)

    async def list_orders(self, request: web.Request) -> web.StreamResponse:
        """One row more than the page is asked for: it tells whether there is a next page."""
        token = await self._parts.access.require(request, READ)
        limit = whole_parameter(request, "limit", REDRIVES_A_PAGE, self._parts.limits.page)
        under_way = flag_parameter(request, "under_way", default=False)
        after = text_parameter(request, "after")
        found = await self._redrives.orders(token.project_id, under_way=under_way, after=after, limit=limit + 1)
        page = found[:limit]
        return json_response({"redrives": page, "next": page[-1].redrive_id if len(found) > limit else None})

    async def stop(self, request: web.Request) -> web.StreamResponse:
        """What it has redriven stays; to stop it once more changes nothing."""
        parts, told = self._parts, request.match_info["redrive"]
        token = await parts.access.require(request, WRITE)
        body = await read_body(request, parts.limits.body, parts.limits.body_seconds)
        if body:
            require_json(request)
        reason = _checked_reason((read_fields(body, StopFields) if body else StopFields()).reason)
        found = None
        if is_storable(told):
            found = await self._redrives.stop(token.project_id, told, token.token_id, reason)
        if found is None:
            raise Refused(
                "E_REDRIVE_NOT_FOUND",
                f"{told[:80]!r} is no redrive of this project; `a44 automation dlq redrives` lists them",
            )
        return json_response(found)

    async def _plan(self, project_id: str, fields: RedriveFields) -> Plan:
        await check_queue(self._parts, project_id, fields.queue)
        rules = Rules(await self._parts.current.get(), project_id, self._parts.door.now(), fields.allow_stale)
        plan = Plan(letter_filter(fields.filter), fields.max, rules)
        size = _PAGE_OF_ENVELOPES if plan.needs_envelopes else _PAGE
        after: str | None = None
        while plan.scanned < MOST_SCANNED:
            page = await self._redrives.candidates(
                project_id, fields.queue, whole=plan.needs_envelopes, after=after, limit=size
            )
            await asyncio.to_thread(plan.look_at, page)
            if len(page) < size:
                break
            after = page[-1].dead_letter_id
        return plan

    def _order(self, token: Token, fields: RedriveFields, plan: Plan, rate: float) -> Order:
        return Order(
            redrive_id=redrive_id(int(self._parts.door.now().timestamp() * 1000)),
            project_id=token.project_id,
            queue_id=fields.queue,
            operator=token.token_id,
            reason=fields.reason,
            filter=fields.filter,
            allow_stale=fields.allow_stale,
            rate=rate,
            cap=self._parts.limits.redrive_rate,
            letters=plan.letters,
        )


def _checked(fields: RedriveFields) -> RedriveFields:
    if not 1 <= fields.max <= _MOST:
        raise Refused("E_INVALID_PARAMETER", f"max is {fields.max}; a redrive takes from 1 to {_MOST} letters")
    _checked_reason(fields.reason)
    return fields


def _checked_reason(reason: str) -> str:
    if len(reason) > _MAX_TEXT or "\0" in reason:
        raise Refused(
            "E_INVALID_PARAMETER",
            f"the reason has {len(reason)} characters; expected at most {_MAX_TEXT}, without NUL",
        )
    return reason


def _confirm(fields: RedriveFields, plan: Plan) -> None:
    """Raises Refused where nothing would come of it, or more than was meant."""
    if not plan.letters:
        raise _nothing(fields, plan, "none can be redriven")
    found = len(plan.letters) + plan.left
    if plan.takes_everything and fields.max != found:
        raise Refused(
            "E_REDRIVE_UNCONFIRMED",
            f"the filter asks nothing of a letter, so it takes every one of {fields.queue}: {found} now; "
            f"say --max {found} if that is meant, or filter, such as error_code == 'E_UPSTREAM_503'",
            details={"letters": found},
        )


def _nothing(fields: RedriveFields, plan: Plan, why: str) -> Refused:
    causes = ", ".join(f"{count} {cause}" for cause, count in sorted(plan.skipped.items()))
    skipped = f" ({causes})" if causes else ""
    return Refused(
        "E_REDRIVE_EMPTY",
        f"of {plan.scanned} dead letters of {fields.queue} that are in no redrive {plan.matched} match, "
        f"and {why}{skipped}",
        details={"scanned": plan.scanned, "matched": plan.matched, "skipped": dict(plan.skipped)},
    )


def _document(fields: RedriveFields, plan: Plan, order: str | None, started: Started) -> dict[str, Any]:
    return {
        "redrive_id": order,
        "queue_id": fields.queue,
        "scanned": plan.scanned,
        "matched": plan.matched,
        "letters": started.letters,
        "left": plan.left,
        "skipped": dict(plan.skipped),
        "rate": started.rate,
        "seconds": math.ceil(started.letters / started.rate),
        "examples": plan.examples,
        "warnings": _warnings(fields, plan, started),
    }


def _warnings(fields: RedriveFields, plan: Plan, started: Started) -> list[str]:
    found = []
    if plan.often:
        found.append(
            f"{plan.often} were redriven twice or more and died again: find the cause first. "
            f"After {MOST_REDRIVES} times a letter is not redriven any more"
        )
    if started.rate < letters_a_second(fields.rate):
        found.append(f"the rate is {started.rate:g} letters a second: the project may not redrive faster now")
    if plan.scanned >= MOST_SCANNED:
        found.append(f"only the oldest {plan.scanned} letters were looked at; order again for the others")
    return found
