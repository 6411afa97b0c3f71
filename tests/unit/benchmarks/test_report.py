"""Rounds become one object, the object becomes tables and a page; missed targets and missing figures are told."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.figures import TARGETS, Figures, Scale, put_together, ranges, with_shares
from benchmarks.page import BEGIN, END, write
from benchmarks.report import sheets, show

ROUNDS: list[Figures] = [
    {"w3_kafka_per_s": 3000.0, "floor_per_s": 6000.0, "cpu_s_per_1000_by_part": {"postgres": 0.2, "executor": 0.3}},
    {"w3_kafka_per_s": 4400.0, "floor_per_s": 5500.0, "cpu_s_per_1000_by_part": {"postgres": 0.4, "executor": 0.3}},
    {"w3_kafka_per_s": 3300.0, "floor_per_s": 6600.0, "cpu_s_per_1000_by_part": {"postgres": 0.3, "executor": 0.3}},
]


def result(rounds: list[Figures]) -> Figures:
    shared = [with_shares(one) for one in rounds]
    return put_together(shared) | {"ranges": ranges(shared), "machine": {"processors": "2 x one"}}


def printed(figures: Figures) -> str:
    out = io.StringIO()
    show(Console(file=out, width=130), figures)
    return out.getvalue()


def test_each_number_is_the_median_of_the_rounds_and_parts_are_kept_apart() -> None:
    merged = put_together(ROUNDS)
    assert merged["w3_kafka_per_s"] == 3300.0
    assert merged["cpu_s_per_1000_by_part"] == {"postgres": 0.3, "executor": 0.3}


def test_a_share_compares_figures_of_one_round() -> None:
    assert [with_shares(one)["share_of_floor"] for one in ROUNDS] == [0.5, 0.8, 0.5]
    assert result(ROUNDS)["share_of_floor"] == 0.5


def test_a_figure_that_a_round_lacks_is_that_of_the_others() -> None:
    assert put_together([{"a": 1.0}, {}, {"a": 3.0}]) == {"a": 2.0}
    assert ranges([{"a": 1.0}, {}, {"a": 3.0}]) == {"a": [1.0, 3.0]}


def test_a_missed_target_is_shown_as_missed() -> None:
    lines = {line for line in printed(result(ROUNDS)).splitlines() if "share of the bare path" in line}
    assert len(lines) == 1
    assert "MISSED" in lines.pop()


def test_a_figure_that_nobody_asked_for_has_no_line() -> None:
    assert "not measured" not in printed(result(ROUNDS))


def test_a_figure_that_could_not_be_measured_has_its_line() -> None:
    text = printed(result(ROUNDS) | {"not_measured": {"idle": "TimeoutError: [no] answer"}})
    assert text.count("not measured") == len(TARGETS) - 3 + 1
    assert "TimeoutError: [no] answer" in text


def test_a_machine_that_was_not_ours_alone_is_named_as_such() -> None:
    cores = {"ours": 1.1, "others": 0.6, "stolen": 0.1, "disk": 0.0, "idle": 0.2}
    busy, alone = cores, cores | {"others": 0.05, "stolen": 0.0}
    assert "Others took 0.7 cores meanwhile" in printed(result([{**ROUNDS[0], "w3_cores": busy}]))
    assert "Others took" not in printed(result([{**ROUNDS[0], "w3_cores": alone}]))


def test_peers_have_their_tables_when_they_were_measured() -> None:
    assert [sheet.title for sheet in sheets(result(ROUNDS))] == ["Figures", "CPU seconds per 1,000 runs"]
    beside = {"restate_per_s": 400.0, "restate_alone_p50_ms": 9.0, "restate_alone_p99_ms": 15.0}
    shown = list(sheets(result([{**one, **beside, "restate_cpu_s_per_1000": 4.4} for one in ROUNDS])))
    assert [sheet.title for sheet in shown][1:3] == ["Beside the peers", "The peers"]
    assert shown[1].rows[0][-1] == "held"


def test_the_page_keeps_what_stands_around_the_figures(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write(result(ROUNDS), "make bench", page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "| share of the bare path |  | 0.50 | 0.50 - 0.80 | >= 0.60 | MISSED |" in text
    write(result(ROUNDS), "make bench", page)
    assert page.read_text() == text


def test_a_page_without_a_place_for_figures_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("before\n")
    with pytest.raises(ValueError, match="no place"):
        write(result(ROUNDS), "make bench", page)
    assert page.read_text() == "before\n"


def test_a_divisor_makes_every_load_smaller_but_never_nothing() -> None:
    assert Scale().of(20_000, 5_000) == 20_000
    assert Scale(is_quick=True).of(20_000, 5_000) == 5_000
    assert Scale(is_quick=True, divisor=1_000_000).of(20_000, 5_000) == 1
