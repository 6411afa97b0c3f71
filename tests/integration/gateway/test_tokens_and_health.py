"""Who may call, and whether the process can serve."""

import asyncio

import pytest
from aiohttp import web

from processors.adapters.postgres.connections import open_pool
from processors.adapters.postgres.run_queries import PostgresRunQueries
from processors.gateway.limits import Limits
from processors.gateway.server import serve
from processors.ports.tokens import READ, WRITE
from schemas.errors import Refused, Unavailable
from tests.integration.gateway.conftest import PROJECT, Gateway
from tests.support.waiting import until


@pytest.fixture
def limits() -> Limits:
    return Limits(token_cache=0.05)


async def test_a_token_tells_its_project_and_scopes_and_is_stored_only_as_a_hash(gateway: Gateway) -> None:
    answer = await gateway.call("GET", "/v1/automation/whoami")
    assert answer.status == 200
    assert (answer.body["project_id"], answer.body["scopes"], answer.body["name"]) == (PROJECT, [WRITE], "tests")
    assert answer.body["token_id"].startswith("tok_")
    assert gateway.token.startswith("a44_")
    rows = await gateway.rows("select token_hash, token_id, name from automation.tokens")
    assert gateway.token not in str(rows)
    assert len(rows[0]["token_hash"]) == 32


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic abc", "Bearer a44_wrong", "Bearer \u00e9\u00e9"])
async def test_without_a_known_token_nothing_is_told(gateway: Gateway, header: str) -> None:
    answer = await gateway.call("GET", "/v1/automation/whoami", headers={"Authorization": header})
    assert (answer.status, answer.code) == (401, "E_TOKEN")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_a_token_works_at_once_and_stops_when_it_expires_or_is_revoked(gateway: Gateway) -> None:
    brief = await gateway.tokens.create_token(PROJECT, "brief", [READ], expires_in=1)
    lasting = await gateway.tokens.create_token(PROJECT, "lasting", [READ], expires_in=86_400)
    for token in (brief, lasting):
        assert (await gateway.call("GET", "/v1/automation/whoami", token=token)).status == 200

    async def is_refused(token: str) -> bool:
        return (await gateway.call("GET", "/v1/automation/whoami", token=token)).status == 401

    await until(lambda: is_refused(brief), "the token has expired")
    assert not await is_refused(lasting)
    await gateway.rows("update automation.tokens set revoked_at = clock_timestamp() where name = 'lasting'")
    await until(lambda: is_refused(lasting), "the token is revoked")


@pytest.mark.parametrize(
    ("project", "name", "scopes", "expires_in"),
    [
        ("automation", "n", [READ], None),
        ("Shop", "n", [READ], None),
        (PROJECT, " ", [READ], None),
        (PROJECT, "n", [], None),
        (PROJECT, "n", ["automation:all"], None),
        (PROJECT, "n", [READ], 0.0),
    ],
)
async def test_a_token_that_cannot_be_is_refused(
    gateway: Gateway, project: str, name: str, scopes: list[str], expires_in: float | None
) -> None:
    with pytest.raises(Refused, match="E_INVALID_PARAMETER"):
        await gateway.tokens.create_token(project, name, scopes, expires_in=expires_in)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/nothing", "/v1/automation/nothing", "/v1/automation", "/v1/a/b/c", "/"])
async def test_an_address_that_is_none_is_a_problem_document(gateway: Gateway, method: str, path: str) -> None:
    answer = await gateway.call(method, path)
    assert (answer.status, answer.code) == (404, "E_NOT_FOUND")
    assert answer.body["type"] == "/errors/E_NOT_FOUND"
    assert answer.body["request_id"] == answer.headers["A44-Request-Id"]


async def test_the_api_is_no_project_of_hooks(gateway: Gateway) -> None:
    answer = await gateway.call("POST", "/v1/automation/runs", json={})
    assert (answer.status, answer.code) == (405, "E_METHOD_NOT_ALLOWED")
    assert "GET" in answer.headers["Allow"]


async def test_health_and_readiness_need_no_token(gateway: Gateway) -> None:
    for path in ("/healthz", "/readyz"):
        async with gateway.session.get(gateway.url + path) as response:
            assert response.status == 200


async def test_a_database_of_another_version_is_not_ready(gateway: Gateway) -> None:
    await gateway.rows("update public.automation_migrations set checksum = 'x'")
    async with gateway.session.get(f"{gateway.url}/readyz") as response:
        assert response.status == 503
        assert (await response.json(content_type=None))["code"] == "E_MIGRATION"


async def test_an_empty_database_is_not_ready(database: str) -> None:
    async with open_pool(database, "test") as pool:
        with pytest.raises(Unavailable, match="a44 migrate"):
            await PostgresRunQueries(pool).check_ready()


async def test_questions_survive_connections_that_the_server_cut(gateway: Gateway, secret: str) -> None:
    await gateway.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
        " and application_name = 'a44-gateway'"
    )
    answers = await asyncio.gather(*(gateway.call("GET", "/v1/automation/runs") for _ in range(8)))
    assert {answer.status for answer in answers} == {200}


async def test_a_port_that_is_taken_is_named(gateway: Gateway) -> None:
    port = int(gateway.url.rpartition(":")[2])
    with pytest.raises(Refused, match=f"{port}.*E_CONFIG"):
        await serve(web.Application(), "127.0.0.1", port)
