"""Writes the figures of a run into docs/performance.md, between two marks; what stands around them is left alone."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figures
from benchmarks.report import Sheet, sheets

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- figures: written by `make bench WRITE=1` -->", "<!-- end of figures -->"


def write(result: Figures, command: str, page: Path = PAGE) -> None:
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{page} has no place for figures")
    page.write_text(f"{before}{BEGIN}\n\n{told(result, command)}\n{END}{after}", "utf-8")


def told(result: Figures, command: str) -> str:
    machine = [[name.replace("_", " "), value] for name, value in result["machine"].items()]
    shown = [Sheet("Measured on", ["", ""], [["command", f"`{command}`"], *machine], words=2), *sheets(result)]
    return "\n".join(_section(sheet) for sheet in shown)


def _section(sheet: Sheet) -> str:
    rules = ["---" if number < sheet.words else "---:" for number in range(len(sheet.columns))]
    lines = [_line(sheet.columns), _line(rules).replace(" ", ""), *map(_line, sheet.rows)]
    return f"### {sheet.title}\n\n" + "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
