"""Code that runs on after its attempt is over, and the next attempt that waits for it."""

from processors.executor.hosts.held import Attempt, HeldRun, Launch
from processors.executor.hosts.leftovers import Leftovers


def launch(run_id: str = "run_1", item: str = "a") -> Launch:
    return Launch(HeldRun(run_id, 1, None), Attempt(item, 2, "x1.2", 5.0, 0.0), {"t": "RUN"})


def test_nothing_left_over_lets_attempts_start() -> None:
    leftovers: Leftovers[str] = Leftovers(lambda _: None)
    assert not leftovers.hold(launch())
    leftovers.add("host", "run_1", "b", 10.0)
    assert not leftovers.hold(launch())


def test_the_next_attempt_starts_when_the_heartbeat_no_longer_names_the_item() -> None:
    released: list[Launch] = []
    leftovers: Leftovers[str] = Leftovers(released.append)
    leftovers.add("host", "run_1", "a", 10.0)
    waiting = launch()
    assert leftovers.hold(waiting)
    leftovers.heard("host", {("run_1", "a"): 1.0})
    leftovers.heard("other", {})
    assert released == []
    leftovers.heard("host", {("run_1", "b"): 1.0})
    assert released == [waiting]
    assert not leftovers.hold(launch())


def test_the_next_attempt_starts_when_the_host_is_gone() -> None:
    released: list[Launch] = []
    leftovers: Leftovers[str] = Leftovers(released.append)
    leftovers.add("host", "run_1", "a", 10.0)
    leftovers.add("host", "run_2", "a", 10.0)
    waiting = launch()
    assert leftovers.hold(waiting)
    leftovers.owner_gone("host")
    assert released == [waiting]


def test_the_outcome_of_a_dropped_attempt_is_taken_once_and_by_its_own_name() -> None:
    released: list[Launch] = []
    leftovers: Leftovers[str] = Leftovers(released.append)
    leftovers.add_owing("host", "run_1", 3, Attempt("a", 1, "h7", 5.0, 10.0))
    waiting = launch()
    assert leftovers.hold(waiting)
    leftovers.heard("host", {})  # a heartbeat may overtake the outcome
    assert leftovers.owes("host")
    assert not leftovers.owes("other")
    for owner, attempt in (("other", (3, 1, "h7")), ("host", (2, 1, "h7")), ("host", (3, 2, "h7"))):
        assert not leftovers.settle(owner, "run_1", "a", attempt)
    assert released == []
    assert leftovers.settle("host", "run_1", "a", (3, 1, "h7"))
    assert released == [waiting]
    assert not leftovers.settle("host", "run_1", "a", (3, 1, "h7"))
    assert not leftovers.owes("host")


def test_a_host_that_is_gone_owes_nothing() -> None:
    leftovers: Leftovers[str] = Leftovers(lambda _: None)
    leftovers.add_owing("host", "run_1", 3, Attempt("a", 1, "h7", 5.0, 10.0))
    leftovers.owner_gone("host")
    assert not leftovers.settle("host", "run_1", "a", (3, 1, "h7"))


def test_code_past_its_deadline_is_named_once_it_is() -> None:
    leftovers: Leftovers[str] = Leftovers(lambda _: None)
    leftovers.add("host", "run_1", "a", 10.0)
    leftovers.add("host", "run_1", "a", 5.0)  # known already
    assert leftovers.overdue(9.9) == []
    assert leftovers.overdue(10.0) == [("host", "run_1", "a")]
