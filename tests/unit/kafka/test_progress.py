"""Who stands still, and who only waits: for the handler, for records, for its turn."""

from processors.adapters.kafka.progress import ENOUGH_POLLS, Progress, Stalled

LIMIT, INTERVAL = 30.0, 5.0


def watched() -> Progress:
    return Progress(LIMIT, INTERVAL, 0.0)


def looks(progress: Progress, positions: dict[int, int], ends: dict[int, int], until: float) -> list[Stalled]:
    """Looks every five seconds; the first answer that names somebody."""
    now = 0.0
    while now < until:
        now += INTERVAL
        stalled = progress.look(positions, ends, now)
        if stalled:
            return stalled
    return []


def test_a_partition_that_is_behind_and_does_not_move_is_told_after_the_limit() -> None:
    stalled = looks(watched(), {0: 5, 1: 7}, {0: 5, 1: 9}, 60)
    assert stalled == [Stalled(1, 7, 9, LIMIT)]


def test_a_partition_without_a_position_stands_still_where_there_are_records() -> None:
    assert looks(watched(), {0: -1}, {0: 3}, 60) == [Stalled(0, -1, 3, LIMIT)]


def test_nothing_to_read_is_no_stall() -> None:
    assert looks(watched(), {0: 5, 1: 0}, {0: 5, 1: 0}, 600) == []


def test_a_partition_that_moves_slowly_is_no_stall() -> None:
    progress = watched()
    for turn in range(100):
        assert progress.look({0: turn // 3}, {0: 1_000}, turn * INTERVAL) == []


def test_d01_the_time_of_a_handler_is_nobodys_fault() -> None:
    progress = watched()
    progress.handler_begins(1.0)
    assert looks(progress, {0: 5}, {0: 9}, 600) == []
    progress.handler_ends(600.0)
    assert progress.look({0: 5}, {0: 9}, 629.0) == []


def test_d08_one_partition_that_is_never_in_a_poll_is_told_while_the_others_keep_the_handler_busy() -> None:
    progress = watched()
    progress.handler_begins(0.0)
    for turn in range(1, 8):
        for part in range(4):
            progress.handler_ends((turn - 1) * INTERVAL + part)
            progress.handler_begins((turn - 1) * INTERVAL + part)
        stalled = progress.look({0: 5, 1: turn}, {0: 9, 1: 100}, turn * INTERVAL)
        assert bool(stalled) == (turn > ENOUGH_POLLS // 4 + 1)
    assert [one.partition for one in stalled] == [0]


def test_time_in_which_the_process_slept_or_the_broker_was_away_is_not_counted() -> None:
    progress = watched()
    assert progress.look({0: 5}, {0: 9}, 5.0) == []
    assert progress.look({0: 5}, {0: 9}, 500.0) == []
    progress.begin_anew(505.0)
    assert progress.look({0: 5}, {0: 9}, 530.0) == []
    assert progress.look({0: 5}, {0: 9}, 535.0) == []
