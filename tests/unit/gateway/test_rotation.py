"""What a rotation makes and ends, decided without a database."""

from datetime import UTC, datetime, timedelta

import pytest

from processors.ports.catalog import WebhookSecret
from processors.runtime.rotation import OVERLAP_SECONDS, RotationPlan, plan_rotation
from schemas.errors import Refused

NOW = datetime(2026, 7, 19, 14, 0, tzinfo=UTC)
ALONE = [WebhookSecret(4)]
BOTH = [WebhookSecret(5), WebhookSecret(4, NOW + timedelta(hours=40))]


def test_the_secret_before_lives_for_another_48_hours() -> None:
    assert plan_rotation("trg_x", ALONE, 4, None) == RotationPlan(5, (), [4])
    assert timedelta(hours=48).total_seconds() == OVERLAP_SECONDS


def test_a_number_is_never_given_again_also_where_later_ones_are_dead() -> None:
    assert plan_rotation("trg_x", ALONE, 9, None).number == 10


def test_a_third_secret_is_refused_with_the_time_and_the_ways_out() -> None:
    with pytest.raises(Refused, match="E_ROTATION_UNDERWAY") as caught:
        plan_rotation("trg_x", BOTH, 5, None)
    assert all(words in caught.value.message for words in ("2026-07-21T06:00:00", "`old`", "`newest`"))


def test_what_leaked_ends_at_once_with_all_before_it() -> None:
    assert plan_rotation("trg_x", BOTH, 5, "old") == RotationPlan(6, [5, 4], ())
    assert plan_rotation("trg_x", ALONE, 4, "old") == RotationPlan(5, [4], ())


def test_a_secret_that_nobody_got_ends_and_its_elder_keeps_its_time() -> None:
    assert plan_rotation("trg_x", BOTH, 5, "newest") == RotationPlan(6, [5], ())


@pytest.mark.parametrize("end", ["", "both", "x" * 500])
def test_another_end_is_refused_by_name(end: str) -> None:
    with pytest.raises(Refused, match="E_INVALID_PARAMETER") as caught:
        plan_rotation("trg_x", ALONE, 4, end)
    assert len(caught.value.message) < 200


def test_a_secret_dies_at_the_second_that_was_told() -> None:
    old = WebhookSecret(4, NOW)
    assert old.lives(NOW - timedelta(microseconds=1))
    assert not old.lives(NOW)
    assert WebhookSecret(5).lives(NOW + timedelta(days=4000))
