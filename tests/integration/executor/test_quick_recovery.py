"""The death of an executor is noticed by its connection, not by its lease; the living are left in peace."""

import asyncio
from functools import partial
from urllib.parse import urlsplit

import pytest

from processors.adapters.postgres.liveness import Liveness
from processors.ports.measures import Measures
from schemas.errors import Unavailable
from tests.integration.executor.scripted_bodies import Act
from tests.integration.executor.works import Working, Works
from tests.support.pretending_pooler import PretendingPooler
from tests.support.waiting import until

WATCHED = "select count(*) from automation.sessions where alive and watched"
HOLDERS = "select pid from pg_locks where locktype = 'advisory' and granted and objsubid = 1"


async def are_watched(works: Works, count: int) -> None:
    async def all_of_them() -> bool:
        return bool(await works.lab.value(WATCHED) == count)

    await until(all_of_them, f"{count} sessions are watched", 10)


async def at_its_gate(works: Works, working: Working, step: str) -> str:
    """One run, stopped inside a step."""
    reached = working.bodies.gate(step)
    run = works.lab.run()
    await works.make(run)
    await asyncio.wait_for(reached.wait(), 10)
    return run.run_id


@pytest.mark.timeout(60)
async def test_work_of_a_dead_executor_goes_on_elsewhere_long_before_its_lease_ends(works: Works) -> None:
    works.script = [[Act("reserve"), Act("charge")]]
    await works.lab.queue()
    measures = works.schedule()
    first = await works.executor(lease=600)
    await are_watched(works, 1)
    run_id = await at_its_gate(works, first, "charge")
    await works.executor("executor-2", lease=600)
    await first.kill()
    (row,) = await works.ended()
    assert (row["state"], row["fence"]) == ("succeeded", 2)
    assert (await works.log(run_id))[1:3] == [("charge", 1, "lost"), ("charge", 2, "succeeded")]
    assert measures.value("sessions_closed_total", "probe") == 1
    assert measures.value("lease_reclaim_total") == 1


@pytest.mark.timeout(60)
async def test_an_executor_that_comes_back_after_a_while_takes_its_work_up_at_once(works: Works) -> None:
    works.script = [[Act("charge")]]
    await works.lab.queue()
    measures = works.schedule()
    first = await works.executor(lease=600)
    await are_watched(works, 1)
    await at_its_gate(works, first, "charge")
    await first.kill()
    await until(lambda: measures.value("lease_reclaim_total") == 1, "the run is granted again", 20)
    await works.executor(lease=600)
    (row,) = await works.ended()
    assert (row["state"], row["fence"]) == ("succeeded", 2)


@pytest.mark.timeout(60)
async def test_an_executor_whose_sign_of_life_breaks_again_and_again_loses_nothing(works: Works) -> None:
    works.script = [[Act("charge")]]
    await works.lab.queue()
    measures = works.schedule()
    working = await works.executor(lease=600)
    run_id = await at_its_gate(works, working, "charge")
    for _ in range(5):
        await are_watched(works, 1)
        holders: set[int] = set()

        async def is_held(before: set[int] = holders) -> bool:
            before |= set(await works.lab.column(HOLDERS))
            return bool(before)

        await until(is_held, "the lock is held", 10)
        for pid in holders:
            await works.lab.rows("select pg_terminate_backend(%s)", pid)
    working.bodies.gates["charge"].set()
    (row,) = await works.ended()
    assert (row["run_id"], row["state"], row["fence"]) == (run_id, "succeeded", 1)
    assert measures.value("lease_reclaim_total") == 0


@pytest.mark.timeout(60)
async def test_e11_the_lock_outlives_the_connections_that_work(works: Works) -> None:
    """Whatever happens to the journal's connection, the sign of life stays on the one it was taken on."""
    works.script = [[Act(f"step-{n}") for n in range(5)]]
    await works.lab.queue()
    working = await works.executor()
    await are_watched(works, 1)
    before = await works.lab.column(HOLDERS)
    await works.make(*[works.lab.run() for _ in range(10)])
    await works.lab.rows("select pg_terminate_backend(%s)", await works.lab.backend_of(working.journal))
    await works.ended(10)
    assert await works.lab.column(HOLDERS) == before
    assert len(before) == 1


@pytest.mark.timeout(60)
async def test_e10_behind_a_pooler_that_shares_connections_no_lock_is_taken(works: Works) -> None:
    """The lock would stay with a connection of the pooler when this process is long gone, or tell of another one."""
    server = urlsplit(works.lab.dsn)
    assert server.hostname is not None
    async with PretendingPooler(server.hostname, server.port or 5432) as pooler:
        dsn = server._replace(
            netloc=f"{server.username}:{server.password}@127.0.0.1:{pooler.port}", query="sslmode=disable"
        )
        liveness = Liveness(dsn.geturl(), 30.0)
        await liveness.hold(1)
        keeping = liveness._keeping
        assert keeping is not None
        await asyncio.wait_for(keeping, 10)
        assert pooler.connections == 1
    assert await works.lab.column(HOLDERS) == []
    assert await works.lab.value(WATCHED) == 0


async def is_over(works: Works, run_id: str) -> bool:
    return await works.state(run_id) == "failed"


def has_begun(working: Working, run_id: str, step: str) -> bool:
    return working.bodies.begun[run_id, step] > 0


@pytest.mark.timeout(120)
async def test_d25_a_run_that_kills_its_executor_each_time_ends_alone(works: Works) -> None:
    """Its neighbours were there each time as well; what is counted in the end is who was there alone."""
    await works.lab.queue()
    measures = works.schedule()
    poison, neighbours = works.lab.run(), [works.lab.run() for _ in range(4)]
    works.script = [[Act("slow")]]
    works.scripts[poison.run_id] = [[Act("poison")]]
    await works.make(*neighbours, poison)
    deaths = 0
    while not await is_over(works, poison.run_id):
        gates = ("poison", "slow") if deaths < 2 else ("poison",)
        working = await works.executor(f"executor-{deaths}", lease=600, gates=gates)
        await are_watched(works, 1)
        begun = partial(has_begun, working, poison.run_id, "poison")

        async def begun_or_over(begun: partial[bool] = begun) -> bool:
            return begun() or await is_over(works, poison.run_id)

        await until(begun_or_over, "the poison is taken", 30)
        if await is_over(works, poison.run_id):
            break
        await working.kill()
        deaths += 1
    assert deaths == 5
    rows = {row["run_id"]: row for row in await works.ended(5)}
    assert rows[poison.run_id]["error_code"] == "E_WORKER_CRASH_LOOP"
    assert {rows[one.run_id]["state"] for one in neighbours} == {"succeeded"}
    assert await works.lab.column("select reason from automation.dead_letters") == ["max_attempts_exceeded"]
    told = [(attempt, status) for step, attempt, status in await works.log(poison.run_id) if step == "poison"]
    assert told == [*[(number, "lost") for number in range(1, 6)], (5, "cancelled")]
    assert measures.value("sessions_closed_total", "probe") == 5


async def crashes(works: Works) -> list[int]:
    return [int(one) for one in await works.lab.column("select crashes from automation.live_runs order by run_id")]


@pytest.mark.timeout(60)
async def test_runs_of_an_executor_that_only_lost_its_session_are_not_blamed(works: Works) -> None:
    """Postgres was away for longer than the lease: five times that would otherwise be a crash loop."""
    works.script = [[Act("charge")]]
    await works.lab.queue()
    working = await works.executor(slots=1)
    await at_its_gate(works, working, "charge")
    await works.lab.kill_session()
    await works.lab.schedule().reap()
    assert await crashes(works) == [1]
    working.executor.look_for_granted()
    await until(lambda: working.executor.measures.value("session_lost_total") == 1, "it hears of it", 10)

    async def is_forgiven() -> bool:
        return await crashes(works) == [0]

    await until(is_forgiven, "the process says that it lives", 10)


@pytest.mark.timeout(60)
async def test_a_result_that_comes_too_late_is_refused_and_kept(works: Works) -> None:
    """The zombie had the result in its hands when its run was somebody else's: the fence refuses it."""
    works.script = [[Act("charge", value='{"paid": 7}')]]
    await works.lab.queue()
    measures = Measures()
    first = await works.executor(measures=measures)
    run_id = await at_its_gate(works, first, "charge")
    await works.lab.kill_session()
    await works.lab.schedule().reap()
    first.bodies.gates["charge"].set()
    (row,) = await works.ended()
    assert (row["state"], row["fence"]) == ("succeeded", 2)

    async def is_kept() -> bool:
        return bool(await works.lab.value("select count(*) = 1 from automation.late_attempts"))

    await until(is_kept, "the late result is kept", 10)
    (late,) = await works.lab.rows("select * from automation.late_attempts")
    told = (late["run_id"], late["fence"], late["step_id"], late["attempt"], late["status"], late["result"])
    assert told == (run_id, 1, "charge", 1, "succeeded", '{"paid": 7}')
    assert (late["project_id"], late["idempotency_key"]) == (row["project_id"], f"{run_id}:charge:g1")
    assert (await works.log(run_id))[:2] == [("charge", 1, "lost"), ("charge", 2, "succeeded")]
    assert measures.value("late_attempts_total") == 1
    assert measures.value("session_false_alarms_total") == 1


@pytest.mark.timeout(60)
async def test_suspects_that_are_only_to_end_do_not_wait_for_one_another(works: Works) -> None:
    await works.lab.queue()
    held, cancelled, overdue, waiting = (works.lab.run() for _ in range(4))
    await works.lab.make([held, cancelled, overdue, waiting])
    await works.lab.rows("update automation.live_runs set crashes = 3")
    journal = await works.lab.journal()
    (first,) = await works.lab.claim(journal)
    assert first.run_id == held.run_id
    await works.lab.send_mail(cancelled.run_id)
    await works.lab.rows(
        "update automation.live_runs set deadline_at = clock_timestamp() where run_id = %s", overdue.run_id
    )
    claims = await works.lab.claim(journal)
    assert {claim.run_id for claim in claims} == {cancelled.run_id, overdue.run_id}


@pytest.mark.timeout(60)
async def test_a_stop_that_could_not_give_its_runs_back_blames_none_of_them(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("processors.executor.executor.DRAIN_SECONDS", 0.2)
    works.script = [[Act("charge")]]
    await works.lab.queue()
    working = await works.executor(lease=600)
    await at_its_gate(works, working, "charge")

    async def refuse(runs: object) -> None:
        raise Unavailable("E_UNAVAILABLE", f"Postgres was away: {runs}")

    monkeypatch.setattr(working.journal, "release", refuse)
    await working.stop()
    (grant,) = await works.lab.schedule().reap()
    assert grant.fence == 2
    assert await crashes(works) == [0]
