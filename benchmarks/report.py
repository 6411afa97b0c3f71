"""The tables of a benchmark: figures with median, range and target; CPU by role; where the time of one run goes.

Rows are made of the JSON object alone; `show` prints them for a terminal, the page in docs holds the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.figures import PEER_TARGETS, TARGETS, Figures, Target
from benchmarks.peers.measure_peers import WAYS

JUDGED = {True: "held", False: "MISSED", None: ""}
STYLES = {"held": "green", "MISSED": "bold red", "not measured": "bold red"}
COSTS = {
    "cpu_s_per_1000_by_part": "through Kafka",
    "rest_cpu_s_per_1000_by_part": "through REST",
    "floor_cpu_s_per_1000_by_part": "bare path",
}
BUSY = 0.2  # cores; with more of them taken, what is counted by the second is not the machine's
CORES = {"w3_cores": "through Kafka", "rest_cores": "through REST", "floor_cores": "bare path"}
IN_A_ROW = {
    "idle_core_percent_by_part": "Idle, % of a core",
    "budget_kafka_ms": "One run at a time, `POST /events` to its end on run-events, ms",
    "budget_rest_ms": "One run at a time, REST with `wait=`, ms",
}
OF_PEERS = {
    "per_s": "runs/s",
    "alone_p50_ms": "alone p50, ms",
    "alone_p99_ms": "alone p99, ms",
    "cpu_s_per_1000": "CPU s/1,000",
}


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table with its title; the first `words` columns are words, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


def show(console: Console, result: Figures) -> None:
    for sheet in sheets(result):
        table = Table(title=sheet.title.replace("`", ""), title_justify="left")
        for number, name in enumerate(sheet.columns):
            table.add_column(name, justify="left" if number < sheet.words else "right")
        for row in sheet.rows:
            table.add_row(*row, style=STYLES.get(row[-1]))
        console.print(table)
    taken = max((result[name]["others"] + result[name]["stolen"] for name in CORES if name in result), default=0.0)
    if taken > BUSY:
        console.print(
            f"Others took {taken:.1f} cores meanwhile: numbers by the second and times say little of this machine. "
            "Measure again when it is idle.",
            style="yellow",
        )
    for name, reason in result.get("not_measured", {}).items():
        console.print(f"not measured: {name}: {reason}", style="bold red", markup=False, soft_wrap=True)


def sheets(result: Figures) -> Iterator[Sheet]:
    if any(target.name in result for target in TARGETS):
        yield _figures("Figures", TARGETS, result)
    peers = [peer for peer in WAYS if f"{peer}_per_s" in result]
    if peers:
        beside = [target for target in PEER_TARGETS if target.name in result]
        if beside:
            yield _figures("Beside the peers", beside, result)
        rows = [[peer.replace("_", " "), *(plain(result[f"{peer}_{figure}"]) for figure in OF_PEERS)] for peer in peers]
        yield Sheet("The peers", ["", *OF_PEERS.values()], rows)
    if any(name in result for name in COSTS):
        yield _side_by_side("CPU seconds per 1,000 runs", COSTS, result)
    if any(name in result for name in CORES):
        yield _side_by_side("Cores at work meanwhile", CORES, result)
    for name, title in IN_A_ROW.items():
        if name in result:
            yield Sheet(
                title,
                [*result[name]],
                [[f"{value:.2g}" if value < 1 else f"{value:.1f}" for value in result[name].values()]],
                words=0,
            )


def _figures(title: str, targets: Sequence[Target], result: Figures) -> Sheet:
    """A figure that nobody asked for has no line; one that could not be measured has."""
    rows = []
    for target in targets:
        if target.name not in result and "not_measured" not in result:
            continue
        asked = "" if target.asks is None else f"{'>=' if target.better == 'more' else '<='} {plain(target.asks)}"
        if target.name not in result:
            rows.append([target.says, target.unit, "-", "", asked, "not measured"])
            continue
        value, (least, most) = result[target.name], result["ranges"][target.name]
        judged = JUDGED[target.is_met(value)]
        rows.append([target.says, target.unit, plain(value), f"{plain(least)} - {plain(most)}", asked, judged])
    return Sheet(title, ["figure", "unit", "median", "range", "target", ""], rows, words=2)


def _side_by_side(title: str, ways: Mapping[str, str], result: Figures) -> Sheet:
    """Figures by part, a column for each way of a run, with their sum."""
    shown = {name: says for name, says in ways.items() if name in result}
    parts = dict.fromkeys(part for name in shown for part in result[name])
    rows = [[part, *(f"{result[name][part]:.3f}" if part in result[name] else "" for name in shown)] for part in parts]
    rows.append(["all", *(f"{sum(result[name].values()):.3f}" for name in shown)])
    return Sheet(title, ["", *shown.values()], rows)


def plain(value: float) -> str:
    """A number as a person reads it."""
    size = abs(value)
    if size >= 100:  # noqa: PLR2004  hundreds need no fraction
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"  # noqa: PLR2004  tens need little
