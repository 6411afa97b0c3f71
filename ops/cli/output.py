"""Where a command's words go: data on stdout, progress and messages on stderr.

With `--json` stdout carries JSON alone. Colours and drawn tables appear only on a terminal (never with
`NO_COLOR`); text from outside cannot steer the terminal: control characters are shown, not sent.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

_BETWEEN = 3  # what a drawn table puts around a cell
_PAINT = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2", "bold": "1"}
_STATE_COLOURS = {
    "succeeded": "green",
    "created": "green",
    "published": "green",
    "ok": "green",
    "failed": "red",
    "compensation_failed": "red",
    "blocked": "red",
    "lost": "red",
    "cancelled": "yellow",
    "compensated": "yellow",
    "retrying": "yellow",
    "warning": "yellow",
    "deduplicated": "yellow",
    "running": "cyan",
    "granted": "cyan",
}


def printable(text: str) -> str:
    """The text with control characters as visible escapes; tabs and line ends become spaces."""
    flat = text.replace("\r\n", " ").replace("\n", " ").replace("\t", " ")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in flat)


def has_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str | None, stream: TextIO) -> str:
    if colour is None or not has_colour(stream):
        return text
    return f"\x1b[{_PAINT[colour]}m{text}\x1b[0m"


def paint_state(state: str, stream: TextIO | None = None) -> str:
    """A state in its colour, on a terminal."""
    return paint(printable(state), _STATE_COLOURS.get(state), stream or sys.stdout)


class Output:
    """One command's two voices."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def document(self, value: object, text: str | None = None) -> None:
        """The one JSON document of a command: laid out on a terminal; else one line, as `text` where it is given."""
        if sys.stdout.isatty():
            sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
        else:
            # Line ends stand only between JSON's tokens, as a sender laid its body out: one line means the same.
            line = text.replace("\r", " ").replace("\n", " ") if text else json.dumps(value, ensure_ascii=False)
            sys.stdout.write(line + "\n")

    def record(self, value: object) -> None:
        """One line of a stream, sent at once."""
        self.line(json.dumps(value, ensure_ascii=False, separators=(",", ":")))

    def line(self, text: str = "") -> None:
        """One line of data for a reader, sent at once."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Progress or a remark: stderr."""
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns: drawn on a terminal that is wide enough, else aligned text with every value whole."""
        if not rows:
            return
        shown = [[printable(cell) for cell in row] for row in rows]
        widths = [max(len(row[n]) for row in (titles, *shown)) for n in range(len(titles))]
        if sys.stdout.isatty() and sum(widths) + _BETWEEN * len(widths) <= shutil.get_terminal_size().columns:
            _draw(titles, shown)
            return
        for row in (titles, *shown):
            cells = (_padded(cell, width) for cell, width in zip(row, widths, strict=True))
            sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _padded(cell: str, width: int) -> str:
    return paint(cell, _STATE_COLOURS.get(cell), sys.stdout) + " " * (width - len(cell))


def _draw(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell, style=_STATE_COLOURS.get(cell, "")) for cell in row))
    console = Console(file=sys.stdout, no_color=not has_colour(sys.stdout), highlight=False)
    # Ids and codes are copied: a narrow terminal wraps whole lines by itself, and no cell is ever folded or cut.
    needed = sum(max(len(row[n]) for row in (titles, *rows)) + 2 for n in range(len(titles))) + 2
    console.width = max(console.width, needed)
    console.print(table)


def text_of(value: Any) -> str:
    """A cell: nothing for None, JSON for what is not text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def columns(document: Mapping[str, Any], *names: str) -> list[str]:
    return [text_of(document.get(name)) for name in names]


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """A span of time as people say it: 12ms, 0.4s, 35s, 4m10s, 2h05m."""
    if seconds < 0.1:  # noqa: PLR2004  below this tenths of a second say nothing
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:  # noqa: PLR2004  above this a tenth does not matter
        return f"{seconds:.1f}s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{whole}s"
