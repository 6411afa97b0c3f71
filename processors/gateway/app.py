"""The gateway's application: every address it answers, and the parts behind them.

Hooks live at `/v1/{project}/{trigger}`, the API at `/v1/automation/...`; no project is called `automation`.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import version

from aiohttp import web

from processors.gateway.access import Access
from processors.gateway.admission import CONNECTIONS, admit
from processors.gateway.bodies import BUDGET, answer_expectation, give_back
from processors.gateway.budget import Budget
from processors.gateway.callers import Callers
from processors.gateway.catalog_view import CatalogView
from processors.gateway.connections import Connections
from processors.gateway.dead_letters import DeadLetterViews
from processors.gateway.event_tail import EventTail
from processors.gateway.event_types import EventTypes
from processors.gateway.events import Events
from processors.gateway.health import Health
from processors.gateway.hooks import Hooks
from processors.gateway.limits import Limits
from processors.gateway.log_stream import RunLog
from processors.gateway.lookups import SharedLookup
from processors.gateway.manual import ManualRuns
from processors.gateway.openapi import ApiDocument
from processors.gateway.parameters import holding_to_parameters
from processors.gateway.parts import Parts
from processors.gateway.polling import SharedPoll
from processors.gateway.problems import answer_errors
from processors.gateway.projects import ProjectFigures
from processors.gateway.publications import Publications
from processors.gateway.rates import RateLimits
from processors.gateway.redrives import RedriveOrders
from processors.gateway.run_views import RunViews
from processors.gateway.signatures import HookSecrets, MasterKey, NoSecrets
from processors.gateway.trigger_tests import TriggerTests
from processors.ports.catalog import Catalog
from processors.ports.dead_letters import DeadLetters
from processors.ports.door import Door
from processors.ports.measures import Measures
from processors.ports.projects import Projects
from processors.ports.redrives import Redrives
from processors.ports.run_queries import History, RunQueries
from processors.ports.secrets import Secrets
from processors.ports.storage import Storage
from processors.ports.taken_events import TakenEvents
from processors.ports.tokens import Tokens

# Told by whoever hears that runs have ended, so that those who wait need not wait for the next poll.
ENDS = web.AppKey("ends", SharedPoll[str, History])
RATES = web.AppKey("rates", RateLimits)

_API = "/v1/automation"
_HOOK = "/v1/{project:(?!automation/)[^/]+}/{trigger:[^/]+}"


def build_app(
    door: Door,
    catalog: Catalog,
    queries: RunQueries,
    tokens: Tokens,
    letters: DeadLetters,
    redrives: Redrives,
    projects: Projects,
    taken: TakenEvents,
    master_key: bytes,
    limits: Limits | None = None,
    measures: Measures | None = None,
    storage: Storage | None = None,
    secrets: Secrets | None = None,
) -> web.Application:
    """Raises Refused E_CONFIG for a master key that is too short."""
    allowed = limits or Limits()
    parts = Parts(
        door=door,
        catalog=catalog,
        current=CatalogView(catalog),
        queries=queries,
        access=Access(tokens, door, allowed.token_cache),
        secrets=HookSecrets(MasterKey(master_key), secrets or NoSecrets()),
        limits=allowed,
        states=SharedLookup(queries.states),
        ends=SharedPoll(partial(queries.ended, limit=allowed.attempts)),
        news=SharedPoll(queries.news),
        rates=RateLimits(projects.rates),
        measures=measures or Measures(),
        storage=storage,
    )
    app = web.Application(middlewares=[answer_errors, admit, give_back])
    app[BUDGET] = Budget(allowed.bodies)
    callers = Callers(allowed.trusted_proxies)
    app[CONNECTIONS] = Connections(allowed.connections, allowed.connections_per_address, callers, parts.measures)
    app[ENDS] = parts.ends
    app[RATES] = parts.rates
    tail = EventTail(parts, taken)
    routes = [
        *_routes(parts),
        *_dead_letters(DeadLetterViews(parts, letters), RedriveOrders(parts, redrives)),
        web.get(f"{_API}/events", tail.show),
        *_projects(ProjectFigures(parts, projects)),
    ]
    app.add_routes(list(holding_to_parameters(routes)))
    app.on_shutdown.append(_stopping(parts, tail))
    return app


def _routes(parts: Parts) -> list[web.RouteDef]:
    publications, runs, health, events = Publications(parts), RunViews(parts), Health(parts), Events(parts)
    types = EventTypes(parts)
    post = partial(web.post, expect_handler=answer_expectation)
    return [
        web.get("/healthz", health.alive),
        web.get("/readyz", health.ready),
        web.get(f"{_API}/openapi.json", ApiDocument(version("anthares44-automation-service")).show),
        web.get(f"{_API}/whoami", health.whoami),
        post(f"{_API}/publish", publications.publish),
        web.get(f"{_API}/workflows", publications.workflows),
        web.get(f"{_API}/triggers", publications.triggers),
        post(f"{_API}/triggers/{{trigger}}/sign", publications.sign),
        web.get(f"{_API}/triggers/{{trigger}}/misses", publications.misses),
        post(f"{_API}/triggers/test", TriggerTests(parts).test),
        post(f"{_API}/triggers/{{trigger}}/rotate", publications.rotate),
        web.get(f"{_API}/event-types", types.list_types),
        web.get(f"{_API}/event-types/{{type}}", types.show),
        post(f"{_API}/events", events.publish),
        web.get(f"{_API}/events/{{event}}", events.show),
        post(f"{_API}/workflows/{{workflow}}/runs", ManualRuns(parts).start),
        web.get(f"{_API}/runs", runs.list_runs),
        web.get(f"{_API}/runs/{{run}}", runs.show),
        web.get(f"{_API}/runs/{{run}}/log", RunLog(parts).stream),
        post(f"{_API}/runs/{{run}}/cancel", runs.cancel),
        post(_HOOK, Hooks(parts).receive),
    ]


def _dead_letters(views: DeadLetterViews, orders: RedriveOrders) -> list[web.RouteDef]:
    post = partial(web.post, expect_handler=answer_expectation)
    return [
        web.get(f"{_API}/dead-letters", views.list_letters),
        web.get(f"{_API}/dead-letters/stats", views.stats),
        post(f"{_API}/dead-letters/redrive", orders.redrive),
        web.get(f"{_API}/dead-letters/redrives", orders.list_orders),
        post(f"{_API}/dead-letters/redrives/{{redrive}}/stop", orders.stop),
        web.get(f"{_API}/dead-letters/{{letter}}", views.show),
    ]


def _projects(figures: ProjectFigures) -> list[web.RouteDef]:
    return [
        web.get(f"{_API}/projects", figures.list_projects),
        web.get(f"{_API}/projects/{{project}}", figures.show),
        web.post(f"{_API}/projects/{{project}}", figures.change, expect_handler=answer_expectation),
    ]


def _stopping(parts: Parts, tail: EventTail) -> Callable[[web.Application], Awaitable[None]]:
    """Those who wait for something are told at once, so that stopping does not wait for them."""

    async def stop(_: web.Application) -> None:
        await parts.ends.close()
        await parts.news.close()
        await tail.fresh.close()

    return stop
