"""The plan of chaos: the same for a seed, and each kind at least once. Which closings of sessions a kill explains."""

from tests.chaos.alarms import false_alarms
from tests.chaos.faults import Fault
from tests.chaos.orders import draw
from tests.chaos.plan import Kind, kinds_for, plan


def test_a_seed_draws_the_same_faults_and_orders_again() -> None:
    kinds = kinds_for("apache")
    assert plan(17, 65, kinds) == plan(17, 65, kinds) != plan(18, 65, kinds)
    assert list(draw(17, 500)) == list(draw(17, 500)) != list(draw(18, 500))


def test_each_kind_happens_and_the_embedded_broker_keeps_nothing() -> None:
    assert {one.kind for one in plan(3, 14, kinds_for("apache"))} == set(Kind)
    assert {one.kind for one in plan(3, 13, kinds_for("embedded"))} == set(Kind) - {Kind.BROKER_KILLED}
    assert len(plan(3, 65, kinds_for("embedded"))) == 65


def test_all_ways_and_workflows_are_asked_for() -> None:
    orders = list(draw(5, 1_000))
    assert {order.way for order in orders} == {"kafka", "hand", "webhook", "event"}
    assert {order.workflow for order in orders} == {"quick", "slow", "moody", "fan", "lane", "nap", "declined"}
    assert len({order.key for order in orders}) == 1_000


def test_a_kill_explains_one_closing_of_that_process_soon_after_it() -> None:
    faults = [
        Fault(Kind.EXECUTOR_KILLED, "executor", 100.0),
        Fault(Kind.ALL_EXECUTORS_KILLED, "executor, executor-2", 200.0),
        Fault(Kind.EXECUTOR_PAUSED, "executor", 300.0),
    ]
    explained = [(101.0, "executor"), (202.0, "executor-2"), (202.0, "executor")]
    alarms = [(99.0, "executor"), (102.0, "executor-2"), (110.0, "executor"), (290.0, "executor"), (301.0, "executor")]
    assert false_alarms(explained, faults) == []
    assert false_alarms([*explained, *alarms], faults) == alarms
