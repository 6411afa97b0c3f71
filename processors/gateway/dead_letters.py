"""Dead letters over HTTP: counted, listed and shown by code and sentence; whole ones under a scope of their own."""

from dataclasses import asdict, fields
from typing import Any

from aiohttp import web

from processors.gateway.documents import attempt_document, raw
from processors.gateway.fields import flag_parameter, since_parameter, text_parameter, whole_parameter
from processors.gateway.parts import Parts, json_response
from processors.ports.dead_letters import DeadLetter, DeadLetters, LetterFilter, OneLetter, Reader
from processors.ports.tokens import DEAD_LETTERS, OPERATOR, READ, Token
from schemas.errors import Refused
from schemas.kept_records import headers_of, redacted
from topology.names import hint

LETTERS_A_PAGE = 50
_RECORDS = "ingest"  # the queues of what never was a run
_REFUSED_ROWS = "relay"


class DeadLetterViews:
    def __init__(self, parts: Parts, letters: DeadLetters) -> None:
        self._parts = parts
        self._letters = letters

    async def stats(self, request: web.Request) -> web.StreamResponse:
        wanted = await self._wanted(request)
        if wanted.queue_id is None:
            raise Refused("E_INVALID_PARAMETER", "the parameter queue is missing: whose dead letters are counted")
        found = await self._letters.stats(wanted)
        if not found:
            await self._check_named(wanted)
        return json_response(
            {
                "queue_id": wanted.queue_id,
                "since": wanted.since,
                "total": sum(one.count for one in found),
                "codes": found,
            }
        )

    async def list_letters(self, request: web.Request) -> web.StreamResponse:
        """One row more than the page is asked for: it tells whether there is a next page."""
        wanted = await self._wanted(request)
        limit = whole_parameter(request, "limit", LETTERS_A_PAGE, self._parts.limits.page)
        more = LetterFilter(**{**asdict(wanted), "limit": limit + 1, "after": text_parameter(request, "after")})
        found = await self._letters.list_letters(more)
        if not found:
            await self._check_named(wanted)
        page = found[:limit]
        return json_response(
            {"dead_letters": page, "next": page[-1].dead_letter_id if len(found) > limit else None},
        )

    async def show(self, request: web.Request) -> web.StreamResponse:
        """`attempts` adds its run's records; `whole` what it keeps, for a token with the scope for that."""
        parts = self._parts
        token = await parts.access.require(request, READ)
        with_attempts = flag_parameter(request, "attempts", default=False)
        if flag_parameter(request, "whole", default=False):
            token = await parts.access.require(request, DEAD_LETTERS)
            document = await self._whole(token, request.match_info["letter"])
        else:
            document = _document(await self._find(_reader(token), request.match_info["letter"]))
        if with_attempts:
            document |= await self._history(token.project_id, document["run_id"])
        return json_response(document)

    async def _wanted(self, request: web.Request) -> LetterFilter:
        token = await self._parts.access.require(request, READ)
        unowned = flag_parameter(request, "unowned", default=False)
        if unowned:
            await self._parts.access.require(request, OPERATOR)
        return LetterFilter(
            project_id=None if unowned else token.project_id,
            queue_id=text_parameter(request, "queue"),
            error_code=text_parameter(request, "error_code"),
            since=since_parameter(request, "since", self._parts.door.now()),
        )

    async def _check_named(self, wanted: LetterFilter) -> None:
        if wanted.project_id is not None and wanted.queue_id is not None:
            await check_queue(self._parts, wanted.project_id, wanted.queue_id)

    async def _find(self, reader: Reader, dead_letter_id: str) -> OneLetter:
        letter = await self._letters.find(reader, dead_letter_id) if is_storable(dead_letter_id) else None
        if letter is None:
            raise Refused(
                "E_DEAD_LETTER_NOT_FOUND",
                f"{dead_letter_id[:80]!r} is no dead letter of this project; `a44 automation dlq list` lists them",
            )
        return letter

    async def _whole(self, token: Token, dead_letter_id: str) -> dict[str, Any]:
        reader = _reader(token)
        letter = await self._find(reader, dead_letter_id)
        document = _document(letter)
        whole = await self._letters.read_whole(reader, dead_letter_id)
        if whole is not None:
            document |= {"envelope": raw(whole.envelope), "raw": whole.raw}
            document |= {"raw_key": letter.record_key, "raw_headers": headers_of(letter.record_headers)}
        return document

    async def _history(self, project_id: str, run_id: str | None) -> dict[str, Any]:
        if run_id is None:
            return {"attempts": [], "late_attempts": []}
        queries, most = self._parts.queries, self._parts.limits.attempts
        return {
            "attempts": [attempt_document(one) for one in await queries.attempts(project_id, run_id, most)],
            "late_attempts": [attempt_document(one) for one in await queries.late_attempts(project_id, run_id, most)],
        }


async def check_queue(parts: Parts, project_id: str, queue_id: str) -> None:
    """Raises Refused for a name that no queue has: nothing of a misspelt one would look like good news."""
    known = {name for project, name in (await parts.current.get()).queues if project == project_id}
    if queue_id not in known | {_RECORDS, _REFUSED_ROWS}:
        raise Refused("E_INVALID_PARAMETER", f"{queue_id[:80]!r} is no queue of this project{hint(queue_id, known)}")


def _document(letter: OneLetter) -> dict[str, Any]:
    """The letter for whoever may see it; of a record, `record` tells what it came with, most of it hidden."""
    told = {field.name: getattr(letter, field.name) for field in fields(DeadLetter)}
    return told if letter.source_topic is None else {**told, "record": redacted(letter.kept)}


def _reader(token: Token) -> Reader:
    return Reader(token.project_id, token.token_id, token.allows(OPERATOR))


def is_storable(text: str) -> bool:
    """Whether it can be asked for at all."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
