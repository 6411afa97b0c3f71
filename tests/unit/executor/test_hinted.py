"""Commands name runs to be claimed, but not those that were claimed already."""

from processors.executor.hinted import CLAIMS_REMEMBERED, Hinted


def test_runs_are_taken_in_the_order_of_their_commands() -> None:
    hinted = Hinted(10)
    assert hinted.add([("a", 1), ("b", 1)])
    assert hinted.add([("c", 1)])
    assert hinted.take(2) == ["a", "b"]
    assert hinted.take(2) == ["c"]
    assert hinted.take(2) == []


def test_a_command_that_comes_behind_the_claim_is_no_news() -> None:
    hinted = Hinted(10)
    hinted.note_claim("a", 1)
    assert not hinted.add([("a", 1)])
    assert hinted.take(1) == []
    assert hinted.add([("a", 2)])  # granted anew since


def test_only_the_newest_are_kept() -> None:
    hinted = Hinted(2)
    hinted.add([("a", 1), ("b", 1), ("c", 1)])
    assert hinted.take(5) == ["b", "c"]
    hinted.add([("d", 1)])
    hinted.clear()
    assert hinted.take(5) == []


def test_claims_are_remembered_for_a_while() -> None:
    hinted = Hinted(10)
    for number in range(3 * CLAIMS_REMEMBERED):
        hinted.note_claim(f"run-{number}", 1)
    assert not hinted.add([(f"run-{number}", 1) for number in range(2 * CLAIMS_REMEMBERED, 3 * CLAIMS_REMEMBERED)])
    assert hinted.add([("run-0", 1)])


def test_what_a_look_found_meanwhile_is_not_asked_for() -> None:
    hinted = Hinted(10)
    hinted.add([("a", 1), ("b", 1)])
    hinted.note_claim("a", 1)
    assert hinted.take(1) == ["b"]
