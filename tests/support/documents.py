"""The project's pages as tests see them: links, headings, tables, blocks of code, and the `a44` commands in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.sources import ROOT, files, name_of

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<(?:img|source)\b[^>]*?(?:src|srcset)=\"([^\"]+)\"")
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_COMMAND = re.compile(r"(?:^|\s)(?:\S*/)?a44 (?=[a-z-])")
_END_OF_COMMAND = frozenset({"|", "||", "&&", ";", ">", "2>", "&", "#", "<"})


@dataclass(frozen=True, slots=True)
class Page:
    path: Path
    text: str

    @property
    def name(self) -> str:
        return name_of(self.path)

    @property
    def prose(self) -> str:
        """Without blocks of code."""
        return _FENCE.sub("", self.text)

    @property
    def blocks(self) -> list[tuple[str, str]]:
        """Language and text of each block of code."""
        return [(found[1], found[2]) for found in _FENCE.finditer(self.text)]

    @property
    def links(self) -> list[str]:
        return [found[1] or found[2] for found in _LINK.finditer(_INLINE.sub("``", self.prose))]

    @property
    def inline(self) -> list[str]:
        """What stands between backquotes; line ends are spaces."""
        return [" ".join(found[1].split()) for found in _INLINE.finditer(self.prose)]

    @property
    def anchors(self) -> set[str]:
        """Of headings, as they are made of them where pages are shown."""
        plain = [re.sub(r"[^\w\- ]", "", found[1].lower()) for found in _HEADING.finditer(self.prose)]
        return {text.replace(" ", "-") for text in plain}

    def rows(self, heading: str | None = None) -> list[list[str]]:
        """Cells of the tables' rows below a heading, or of all; without header and line."""
        text = self.prose if heading is None else self._below(heading)
        lines = [line for line in text.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
        return [row for at, row in enumerate(cells) if not _is_line(row) and not _is_header(cells, at)]

    def _below(self, heading: str) -> str:
        found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", self.prose, re.MULTILINE | re.DOTALL)
        assert found is not None, f"{self.name} has no heading {heading!r}"
        return found[1]


def _is_line(row: list[str]) -> bool:
    return set("".join(row)) <= set("-|: ")


def _is_header(cells: list[list[str]], at: int) -> bool:
    return at + 1 < len(cells) and _is_line(cells[at + 1])


def page(name: str) -> Page:
    path = ROOT / name
    return Page(path, path.read_text("utf-8"))


def pages() -> list[Page]:
    """Every page that people read: at the root, in docs/, beside the SDK."""
    paths = [*ROOT.glob("*.md"), *files("docs", pattern="*.md"), *files("sdk", pattern="*.md")]
    return [Page(path, path.read_text("utf-8")) for path in sorted(paths)]


def commands(of: Page) -> Iterator[list[str]]:
    """Words of every `a44 ...` in blocks of shell and between backquotes, without `a44` itself."""
    told = [text for language, text in of.blocks if language in ("sh", "console")]
    lines = [line for text in told for line in text.replace("\\\n", " ").splitlines()]
    for line in [*lines, *of.inline]:
        for found in _COMMAND.finditer(line):
            yield list(_words(line[found.end() :]))


def _words(text: str) -> Iterator[str]:
    lexer = shlex.shlex(text.replace("...", "x"), posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    for word in lexer:
        if word in _END_OF_COMMAND:
            return
        yield word
