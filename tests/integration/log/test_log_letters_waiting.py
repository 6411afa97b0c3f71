"""Dead letters that wait, as measures of the upkeep: by queue, without those that ran again, and 0 once none does."""

import pytest
from psycopg import AsyncConnection

from processors.adapters.postgres import letters_waiting
from processors.adapters.postgres.letters_waiting import LettersWaiting
from processors.ports.measures import Measures
from tests.integration.log.lab import PROJECT
from tests.integration.log.yard import QUEUE, Yard

BURY = """
insert into automation.dead_letters (dead_letter_id, project_id, queue_id, reason, error_code, summary, created_at)
values (%s, %s, %s, 'undecodable', 'E_ENVELOPE_INVALID', 'no', clock_timestamp() - make_interval(secs => %s))
"""


async def told(yard: Yard, waiting: LettersWaiting) -> dict[tuple[str, ...], float]:
    async with await AsyncConnection.connect(yard.lab.dsn, autocommit=True) as conn:
        await waiting.tell(conn)
    return {labels: value for name, labels, value in yard.measures if name == "dlq_depth"}


async def test_letters_that_wait_are_told_by_queue_until_they_run_again(yard: Yard) -> None:
    waiting = LettersWaiting(yard.measures)
    assert await told(yard, waiting) == {}
    await yard.take(3)
    letters = await yard.die()
    for number, (project, queue) in enumerate((("pj_b", "q_a"), ("pj_b", "q_b"), (None, "ingest"), (None, "relay"))):
        await yard.lab.rows(BURY, f"dlq_{number}", project, queue, 3600)
    others = {("pj_b", "q_a"): 1, ("pj_b", "q_b"): 1, ("", "ingest"): 1, ("", "relay"): 1}
    assert await told(yard, waiting) == {(PROJECT, QUEUE): 3, **others}
    assert yard.measures.value("dlq_oldest_seconds", "pj_b", "q_a") >= 3600
    assert 0 <= yard.measures.value("dlq_oldest_seconds", PROJECT, QUEUE) < 3600
    await yard.redrive(letters)
    assert await told(yard, waiting) == {(PROJECT, QUEUE): 0, **others}
    assert yard.measures.value("dlq_oldest_seconds", PROJECT, QUEUE) == 0


async def test_of_very_many_no_more_are_counted_than_is_told(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters_waiting, "MOST_COUNTED", 2)
    for number in range(4):
        await yard.lab.rows(BURY, f"dlq_{number}", PROJECT, QUEUE, 10 * number)
    assert await told(yard, LettersWaiting(yard.measures)) == {(PROJECT, QUEUE): 2}
    assert yard.measures.value("dlq_oldest_seconds", PROJECT, QUEUE) >= 30


async def test_the_upkeep_tells_them(yard: Yard) -> None:
    await yard.lab.rows(BURY, "dlq_1", PROJECT, QUEUE, 10)
    measures = Measures()
    await yard.lab.schedule(measures).sweep()
    assert measures.value("dlq_depth", PROJECT, QUEUE) == 1
