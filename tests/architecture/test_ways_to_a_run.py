"""There is one statement that makes runs, behind one that takes a key: no way in goes around it."""

import re

from tests.support.sources import PRODUCT, files, modules, name_of

MAKES_RUNS = re.compile(r"insert\s+into\s+automation\.live_runs\b", re.IGNORECASE)
TAKES_KEYS = re.compile(r"insert\s+into\s+automation\.idempotency_keys\b", re.IGNORECASE)
SQL = "processors/adapters/postgres/sql"
CALLERS = {
    "processors/adapters/postgres/door.py",  # runs by hand, once their key is won
    "processors/adapters/postgres/ingest_log.py",  # events, once key and event are new
    "processors/adapters/postgres/redrives.py",  # letters by order of a person, each once
}


def test_b07_one_statement_makes_runs_and_one_takes_keys() -> None:
    found = {
        (name_of(path), what)
        for path in files(*PRODUCT, pattern="*.sql")
        for what, pattern in (("runs", MAKES_RUNS), ("keys", TAKES_KEYS))
        for _ in pattern.finditer(path.read_text("utf-8"))
    }
    assert found == {(f"{SQL}/grants.sql", "runs"), (f"{SQL}/door.sql", "keys")}


def test_b07_a_run_is_made_only_for_an_event_that_its_own_transaction_saw_first() -> None:
    text = next(path for path in files("processors", pattern="grants.sql")).read_text("utf-8")
    statement = text.partition("-- name: create_runs\n")[2].partition("-- name:")[0]
    seen_first, made = statement.partition("insert into automation.live_runs")[::2]
    assert "automation.inbox" in seen_first
    assert "i.xid = pg_current_xact_id()" in seen_first
    assert re.search(r"\bfrom seated\b", made)


def test_b07_only_the_doors_ingest_and_redrives_make_runs() -> None:
    calls = re.compile(r"(?<!def )\bcreate_runs\(")
    assert {name_of(path) for path in modules(*PRODUCT) if calls.search(path.read_text("utf-8"))} == CALLERS
