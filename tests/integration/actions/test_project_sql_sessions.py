"""What a statement leaves in its session stays behind: connections are used again, by other runs."""

import pytest

from tests.integration.actions.conftest import Project
from tests.integration.actions.test_project_sql import MARK_PAID


@pytest.mark.parametrize(
    "left",
    [
        "set search_path = pg_catalog",
        "create temporary table invoices as select 'false' as id, 'paid' as status",
        "set default_transaction_read_only = on",
        "set statement_timeout = '1ms'",
    ],
)
async def test_what_a_statement_leaves_in_its_session_does_not_reach_the_next(project: Project, left: str):
    await project.run(left)
    assert (await project.run(MARK_PAID, lane="inv_1"))["rowcount"] == 1
    assert await project.sessions() == 1


async def test_a_lock_of_the_session_is_not_kept(project: Project):
    await project.run("select pg_advisory_lock(7)")
    assert await project.ask("select pg_try_advisory_lock(7)") == [(True,)]
