"""`sql/execute` against a real Postgres: the project's own database, one transaction for each attempt."""

import asyncio
import contextlib
import gc
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from processors.adapters.postgres.project_sql import ProjectSql
from processors.adapters.postgres.project_sql.connections import MOST_CONNECTIONS
from processors.ports.actions import StepFailure
from schemas.errors import Refused
from schemas.results import RESULT_BYTES
from tests.integration.actions.conftest import Project, statement
from tests.support.waiting import until

MARK_PAID = "update invoices set status='paid' where id = $1"


async def test_the_lane_value_is_bound_where_no_params_are_given(project: Project):
    assert await project.run(MARK_PAID, lane="inv_1") == {"rowcount": 1, "rows": []}
    assert await project.ask("select id, status from invoices order by id") == [("inv_1", "paid"), ("inv_2", "open")]


async def test_a_statement_that_binds_nothing_runs(project: Project):
    assert await project.run("update invoices set status = 'x $1' -- not $1") == {"rowcount": 2, "rows": []}
    assert await project.run("create table more (id int)") == {"rowcount": 0, "rows": []}


async def test_rows_come_by_column_name(project: Project):
    result = await project.run("select id, amount from invoices order by id")
    assert result == {"rowcount": 2, "rows": [{"id": "inv_1", "amount": 100}, {"id": "inv_2", "amount": 200}]}
    returned = await project.run("delete from invoices where id = $1 returning amount as gone", lane="inv_2")
    assert returned == {"rowcount": 1, "rows": [{"gone": 200}]}
    assert await project.run("select id from invoices where false") == {"rowcount": 0, "rows": []}


async def test_an_insert_can_be_made_harmless_to_repeat(project: Project):
    query = "insert into invoices (id, amount) values ($1, $2) on conflict (id) do nothing returning id"
    assert (await project.run(query, ["inv_3", 5]))["rows"] == [{"id": "inv_3"}]
    assert await project.run(query, ["inv_3", 5]) == {"rowcount": 0, "rows": []}


async def test_values_are_data_and_never_sql(project: Project):
    evil = "'; drop table invoices; -- $1 %s {}"
    assert (await project.run("select $1::text as v", [evil]))["rows"] == [{"v": evil}]
    assert (await project.run("select $1::text as v", lane=evil))["rows"] == [{"v": evil}]


@pytest.mark.parametrize(
    ("value", "cast", "expected"),
    [
        ("text", "text", "text"),
        (7, "int4", 7),
        (2**53 + 1, "int8", 2**53 + 1),
        (2**70, "numeric", str(2**70)),
        (1.5, "float8", 1.5),
        (7, "text", "7"),
        ("7", "int4", 7),
        (True, "bool", True),
        (None, "text", None),
        ({"a": [1, {"b": 2**70}]}, "jsonb", {"a": [1, {"b": 2**70}]}),
        ([{"a": 1}], "jsonb", [{"a": 1}]),
        ([1, "a"], "jsonb", [1, "a"]),
        (["a", None, "b,c"], "text[]", ["a", None, "b,c"]),
        ([1, 2], "int4[]", [1, 2]),
        ([], "text[]", []),
    ],
)
async def test_json_values_are_bound_by_their_type(project: Project, value: Any, cast: str, expected: Any):
    assert (await project.run(f"select $1::{cast} as v", [value]))["rows"] == [{"v": expected}]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("12.50::numeric", "12.50"),
        ("'NaN'::numeric", "NaN"),
        ("timestamptz '2026-07-19 11:02:11.884-03'", "2026-07-19T14:02:11.884+00"),
        ("timestamp '2026-07-19 11:02:11'", "2026-07-19T11:02:11"),
        ("'infinity'::timestamptz", "infinity"),
        ("date '10000-01-01'", "10000-01-01"),
        ("time '11:02'", "11:02:00"),
        ("interval '1 day 2 hours'", "P1DT2H"),
        ("'0b0f6dd2-0b2f-4d0e-8a2f-3f0a9c1d2e3f'::uuid", "0b0f6dd2-0b2f-4d0e-8a2f-3f0a9c1d2e3f"),
        ("'\\xdeadbeef'::bytea", "\\xdeadbeef"),
        ("'10.0.0.1/8'::inet", "10.0.0.1/8"),
        ("int4range(1, 5)", "[1,5)"),
        ("row(1, 'a')", "(1,a)"),
        ("array[1.50::numeric, null]", ["1.50", None]),
        ('\'{"a": 1180591620717411303424, "b": 1.0}\'::jsonb', {"a": 2**70, "b": 1.0}),
        ("'{\"a\": 1}'::json", {"a": 1}),
        ("null", None),
        ("point(1,2)", "(1,2)"),
        ("'\"x\"=>1'::text", '"x"=>1'),
    ],
)
async def test_what_json_lacks_comes_as_text(project: Project, expression: str, expected: Any):
    assert (await project.run(f"select {expression} as v"))["rows"] == [{"v": expected}]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("update invoices set status = 'changed' returning 'NaN'::float8 as v", "E_RESULT_NOT_JSON"),
        ("update invoices set status = 'changed' returning '{\"a\": 1e2000}'::jsonb as v", "E_RESULT_NOT_JSON"),
        ("update invoices set status = 'changed' returning '{\"a\": 1e999}'::json as v", "E_RESULT_NOT_JSON"),
        ("update invoices set status = 'changed' returning '{\"a\": 1, \"a\": 2}'::json as v", "E_RESULT_NOT_JSON"),
        ("update invoices set status = 'changed' returning repeat('x', 200000) as v", "E_RESULT_TOO_LARGE"),
        ("update invoices set status = 'changed' returning id as v, status as v", "E_SQL"),
    ],
)
async def test_a_result_that_cannot_be_recorded_undoes_the_statement(project: Project, query: str, code: str):
    with pytest.raises(Refused) as refusal:
        await project.run(query)
    assert refusal.value.code == code
    assert await project.ask("select distinct status from invoices") == [("open",)]
    assert await project.run(MARK_PAID, lane="inv_1") == {"rowcount": 1, "rows": []}
    assert await project.sessions() == 1


async def test_a_flood_of_rows_is_stopped_early(project: Project):
    async with asyncio.timeout(20):
        with pytest.raises(Refused) as refusal:
            await project.run("select generate_series(1, 1000000000) as n, repeat('x', 1000) as pad", seconds=60)
    assert refusal.value.code == "E_RESULT_TOO_LARGE"
    assert f"at most {RESULT_BYTES}" in refusal.value.message


@pytest.mark.parametrize(
    ("query", "params", "state", "told"),
    [
        ("insert into invoices (id) values ($1)", ["inv_1"], "23505", "invoices_pkey"),
        ("insert into invoices (id, amount) values ($1, $2)", ["hidden", -5], "23514", "invoices_amount_check"),
        ("select $1::int4 as n", ["hidden"], "22P02", "InvalidTextRepresentation"),
        ("select 1 / $1::int4 as n", [0], "22012", "DivisionByZero"),
        ("selct 1", None, "42601", 'syntax error at or near "selct", at character 1'),
        ("select * from nowhere", None, "42P01", 'relation "nowhere" does not exist'),
        ("select 1; select 2", None, "42601", "multiple commands"),
        ("do $$ begin raise exception 'hidden'; end $$", None, "P0001", "RaiseException"),
    ],
)
async def test_a_failed_statement_tells_its_state_and_no_data(
    project: Project, query: str, params: list[Any] | None, state: str, told: str
):
    error = await project.failure(query, params)
    assert (error.code, error.retryable) == ("E_SQL", False)
    assert f"SQLSTATE {state}" in error.message
    assert told in error.message
    assert "hidden" not in error.message
    assert "inv_1" not in error.message


async def test_copy_is_refused_and_the_next_statement_runs(project: Project):
    error = await project.failure("copy invoices to stdout")
    assert (error.code, error.retryable) == ("E_SQL", False)
    assert (await project.run("select 1 as one"))["rows"] == [{"one": 1}]


async def test_a_deadlock_is_worth_another_try(project: Project):
    async with (
        await psycopg.AsyncConnection.connect(project.dsn) as other,
        asyncio.timeout(20),
    ):
        await other.execute("update invoices set amount = 1 where id = 'inv_2'")
        # Locks inv_1, then waits for inv_2; the other side then asks for inv_1.
        both = "update invoices set amount = 3 where id in (select id from invoices order by id for update)"
        failing = asyncio.create_task(project.action(statement(both, seconds=15)))
        await until(lambda: _is_waiting(project), "the action waits for the lock")
        try:
            await other.execute("set local deadlock_timeout = '10s'")
            await other.execute("update invoices set amount = 2 where id = 'inv_1'")
        finally:
            with pytest.raises(StepFailure) as failed:
                await failing
    assert (failed.value.error.code, failed.value.error.retryable) == ("E_SQL", True)
    assert "40P01" in failed.value.error.message


async def _is_waiting(project: Project) -> bool:
    query = "select count(*) from pg_stat_activity where application_name = 'a44-sql' and wait_event_type = 'Lock'"
    [(count,)] = await project.ask(query)
    return int(count) > 0


async def test_a_statement_past_its_timeout_is_cancelled_at_the_server(project: Project):
    error = await project.failure("select pg_sleep(30)", seconds=0.3)
    assert (error.code, error.retryable) == ("E_STEP_TIMEOUT", True)
    assert "0.3 s" in error.message
    query = "select count(*) from pg_stat_activity where query like 'select pg_sleep%%' and state = 'active'"
    await until(lambda: _counts(project, query, 0), "the statement is gone")


async def test_a_cancelled_attempt_is_cancelled_at_the_server(project: Project):
    running = "select count(*) from pg_stat_activity where query like 'select pg_sleep%%' and state = 'active'"
    task = asyncio.create_task(project.action(statement("select pg_sleep(30)", seconds=60)))
    await until(lambda: _counts(project, running, 1), "the statement runs")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: _counts(project, running, 0), "the statement is gone")
    assert (await project.run("select 1 as one"))["rows"] == [{"one": 1}]


async def test_attempts_cut_at_any_moment_leave_no_connection_behind(project: Project):
    async def cut(seconds: float) -> None:
        with contextlib.suppress(StepFailure):
            await project.action(statement("select pg_sleep(0.005)", seconds=seconds))

    for round_ in range(6):
        await asyncio.gather(*(cut(0.001 + 0.002 * n + 0.0003 * round_) for n in range(2 * MOST_CONNECTIONS)))
    assert (await project.run("select 1 as one"))["rows"] == [{"one": 1}]
    await project.action.aclose()
    gc.collect()
    await until(lambda: _are_gone(project), "no session is left")


async def test_a_server_that_never_answers_is_left_at_the_timeout(project: Project):
    left = asyncio.Event()

    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    server = await asyncio.start_server(be_silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        project.secrets.found["sec_database"] = make_conninfo(project.dsn, host="127.0.0.1", port=port)
        async with asyncio.timeout(20):
            error = await project.failure("select 1", seconds=0.2)
            gc.collect()  # the driver's half-made connection ends with the exception that holds it
            await left.wait()
            left.clear()
            patient = await project.failure("select 1", seconds=4.5)
            await left.wait()  # at once, without the collector
    assert (error.code, error.retryable) == ("E_STEP_TIMEOUT", True)
    assert (patient.code, patient.retryable) == ("E_SQL_UNAVAILABLE", True)


async def _are_gone(project: Project) -> bool:
    return await project.sessions() == 0


async def _counts(project: Project, query: str, expected: int) -> bool:
    [(count,)] = await project.ask(query)
    return int(count) == expected


async def test_a_session_killed_during_the_statement_is_worth_another_try(project: Project):
    error = await project.failure("select pg_terminate_backend(pg_backend_pid())")
    assert (error.code, error.retryable) == ("E_SQL_UNAVAILABLE", True)
    assert (await project.run("select 1 as one"))["rows"] == [{"one": 1}]


async def test_a_session_killed_while_idle_is_replaced_unseen(project: Project):
    await project.run("select 1 as one")
    await project.ask("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'a44-sql'")
    await until(lambda: _are_gone(project), "it is gone, not only told to go")
    assert (await project.run("select 1 as one"))["rows"] == [{"one": 1}]


async def test_connections_are_few_and_used_again(project: Project):
    calls = [project.run("select pg_sleep(0.05), $1::text as v", [str(n)]) for n in range(3 * MOST_CONNECTIONS)]
    results = await asyncio.gather(*calls)
    assert [result["rows"][0]["v"] for result in results] == [str(n) for n in range(3 * MOST_CONNECTIONS)]
    assert await project.sessions() == MOST_CONNECTIONS


async def test_settings_do_not_leak_into_the_next_attempt(project: Project):
    await project.run("select set_config('search_path', 'nowhere', true) as v")
    assert await project.run(MARK_PAID, lane="inv_1") == {"rowcount": 1, "rows": []}
    assert await project.run("begin") == {"rowcount": 0, "rows": []}
    assert await project.run(MARK_PAID, lane="inv_1") == {"rowcount": 1, "rows": []}


async def test_a_changed_secret_is_used_at_the_next_attempt(project: Project):
    await project.run("select 1 as one")
    project.secrets.found["sec_database"] = make_conninfo(
        project.dsn, password="wrong", host="127.0.0.1", user="nobody_x"
    )
    error = await project.failure("select 1")
    assert (error.code, error.retryable) == ("E_SQL_UNAVAILABLE", True)
    assert "wrong" not in error.message
    project.secrets.found["sec_database"] = project.dsn
    assert (await project.run("select 1 as one"))["rows"] == [{"one": 1}]


async def test_a_database_that_does_not_answer_is_worth_another_try(project: Project):
    project.secrets.found["sec_database"] = "postgresql://app:hidden@127.0.0.1:1/shop"
    error = await project.failure("select 1")
    assert (error.code, error.retryable) == ("E_SQL_UNAVAILABLE", True)
    assert "127.0.0.1" not in error.message


@pytest.mark.parametrize(
    ("dsn", "told"),
    [
        ("postgres//app:hidden@host", "no Postgres address"),
        ("postgresql:///shop", "no host and no user"),
        ("host=127.0.0.1 password=hidden", "no user and no dbname"),
    ],
)
async def test_an_address_must_name_everything_itself(project: Project, dsn: str, told: str):
    project.secrets.found["sec_database"] = dsn
    with pytest.raises(Refused, match=told) as refusal:
        await project.run("select 1")
    assert refusal.value.code == "E_CONFIG"
    assert "hidden" not in str(refusal.value)


async def test_the_environment_of_the_process_is_not_used(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PGOPTIONS", "-c search_path=nowhere")
    monkeypatch.setenv("PGPASSWORD", "the platform's")
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    await project.run(MARK_PAID, lane="inv_1")
    bare = make_conninfo(project.dsn, password="")
    project.secrets.found["sec_database"] = bare
    error = await project.failure("select 1")
    assert error.code == "E_SQL_UNAVAILABLE"


async def test_the_platforms_own_database_and_role_are_refused(project: Project):
    for platform in (project.dsn, make_conninfo(project.dsn, dbname="other"), make_conninfo(project.dsn, user="other")):
        action = ProjectSql(project.secrets, platform)
        with pytest.raises(Refused, match="platform's own") as refusal:
            await action(statement("select 1"))
        assert refusal.value.code == "E_CONFIG"
        await action.aclose()
    action = ProjectSql(project.secrets, make_conninfo(project.dsn, dbname="other", user="other"))
    await action(statement("select 1 as one"))
    await action.aclose()


async def test_an_unset_secret_is_refused(project: Project):
    project.secrets.found.clear()
    with pytest.raises(Refused) as refusal:
        await project.run("select 1")
    assert refusal.value.code == "E_SECRET_UNKNOWN"
