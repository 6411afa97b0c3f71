"""What the handlers share, and the ways in which they answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec
import structlog
from aiohttp import web

from processors.gateway.access import Access
from processors.gateway.catalog_view import CatalogView
from processors.gateway.limits import Limits
from processors.gateway.lookups import SharedLookup
from processors.gateway.polling import SharedPoll
from processors.gateway.rates import RateLimits
from processors.gateway.signatures import HookSecrets
from processors.ports.catalog import Catalog, CatalogSnapshot
from processors.ports.door import Acceptance, Answer, Door, Outcome
from processors.ports.measures import Measures
from processors.ports.misses import FilterMiss
from processors.ports.run_queries import Cursor, History, News, RunQueries
from processors.ports.storage import Storage
from schemas.errors import Refused, Unavailable
from schemas.stored_bodies import StoredBody, too_large_to_travel

ACCEPTED = "accepted"  # the state of a run that is promised and not made yet

_MOST_CATALOGS = 5

_log = structlog.get_logger(__name__)


class PassedOverError(Exception):
    """Nothing is to be made of it: the filter of its trigger says so. `kept` is what is kept of that, where it asks."""

    def __init__(self, kept: FilterMiss | None = None) -> None:
        super().__init__("filtered")
        self.kept = kept


@dataclass(frozen=True, slots=True)
class Parts:
    door: Door
    catalog: Catalog
    current: CatalogView
    queries: RunQueries
    access: Access
    secrets: HookSecrets
    limits: Limits
    states: SharedLookup[str, str]
    ends: SharedPoll[str, History]
    news: SharedPoll[Cursor, News]
    rates: RateLimits
    measures: Measures
    storage: Storage | None = None

    def body_for_storage(self, project_id: str, data: str) -> StoredBody | None:
        """What has to be put into storage of this data, where there is one."""
        return None if self.storage is None else too_large_to_travel(project_id, data, self.door.now())

    async def accept_by_catalog(self, decide: Callable[[CatalogSnapshot], Acceptance]) -> Answer:
        """Through the door as the catalog in force has it. What was decided by another one, a refusal as well, is
        decided anew. Raises what `decide` raises.
        """
        snapshot = self.current.at_hand or await self.current.get()
        for _ in range(_MOST_CATALOGS):
            try:
                item, refused = decide(snapshot), None
            except (Refused, PassedOverError) as exc:
                item, refused = None, exc
            if item is not None:
                answer = await self.accept(item)
                if answer.outcome is not Outcome.OUTDATED:
                    return answer
            newest = await self.current.get()
            if refused is not None and newest is snapshot:
                if type(refused) is PassedOverError:  # what derives from it is answered by whoever raised it
                    return await self._filtered(refused)
                raise refused
            snapshot = newest
        raise Unavailable("E_UNAVAILABLE", "definitions are published one after the other; send it again")

    async def _filtered(self, passed: PassedOverError) -> Answer:
        """An answer like the others, although no key was taken: a repetition asks the filter again."""
        if passed.kept is not None:
            await self.catalog.keep_misses([passed.kept])
        self.measures.count("events_filtered_total")
        self.measures.count("door_answers_total", 1, Outcome.FILTERED.value)
        return Answer(Outcome.FILTERED, "", None, 0.0, b"")

    async def accept(self, item: Acceptance) -> Answer:
        """Through the door, its body before it. Raises Refused E_IDEMPOTENCY_CONFLICT; both hashes go to the log only.
        Raises Unavailable, E_STORAGE_UNAVAILABLE among them: then nothing was accepted.
        """
        if item.body is not None and self.storage is not None:
            await self.storage.put(item.body)
        answer = await self.door.accept(item)
        self.measures.count("door_answers_total", 1, answer.outcome.value)
        if answer.outcome is Outcome.CONFLICT:
            _log.warning(
                "idempotency_conflict",
                project_id=item.project_id,
                idempotency_key=item.idempotency_key,
                first_body=answer.first_body_hash.hex(),
                this_body=item.body_hash.hex(),
            )
            raise Refused(
                "E_IDEMPOTENCY_CONFLICT",
                f"the key was used {answer.key_age:.1f} s ago with another body; "
                "a retry sends the same body, another event needs a key of its own",
            )
        return answer

    async def end_of(self, run_id: str, patience: float, *, look_first: bool = False) -> History | None:
        """None when it did not end in time, also when this process stops meanwhile: its end can be asked again."""
        try:
            return await self.ends.wait(run_id, patience, look_first=look_first)
        except Unavailable as exc:
            if exc.code != "E_SHUTTING_DOWN":
                raise
            return None

    async def told(self, answer: Answer, key_source: str) -> web.Response:
        """How an accepted thing is answered: 202 the first time, 200 with what the key stands for after that.

        What a filter passed over is 202 as well: the sender did right, and nothing is made of it.
        """
        if answer.outcome is Outcome.FILTERED:
            return json_response({"status": answer.outcome.value}, 202)
        document = await self.document(answer, key_source)
        response = json_response(document, 202 if answer.outcome is Outcome.CREATED else 200)
        place = f"events/{quote(answer.event_id, '')}" if answer.run_id is None else f"runs/{answer.run_id}"
        response.headers["Location"] = f"/v1/automation/{place}"
        return response

    async def document(self, answer: Answer, key_source: str) -> dict[str, Any]:
        """What is told of an accepted thing: what its key stands for, and how long it has."""
        document: dict[str, Any] = {
            "event_id": answer.event_id,
            "status": answer.outcome.value,
            "key_source": key_source,
        }
        if answer.run_id is not None:
            document = {"run_id": answer.run_id, **document}
        if answer.outcome is not Outcome.CREATED:
            document["key_age_seconds"] = round(answer.key_age, 3)
            if answer.run_id is not None:
                document["state"] = await self.states.get(answer.run_id) or ACCEPTED
        return document


def json_response(document: Mapping[str, Any] | Sequence[Any] | object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(document), status=status, content_type="application/json")
