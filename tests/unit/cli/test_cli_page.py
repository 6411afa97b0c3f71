"""The page about the command line says what the code does."""

from pathlib import Path

from ops.cli.failures import EXIT_CODES
from ops.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"


def rows() -> dict[str, list[str]]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells}


def test_every_setting_stands_there_with_what_it_does() -> None:
    found = rows()
    missing = {
        name: field.description
        for name, field in Settings.model_fields.items()
        if found.get(name, ["", ""])[-1] != (field.description or "").strip(" `")
    }
    assert not missing


def test_every_exit_code_stands_there() -> None:
    codes = [line.split()[0] for line in EXIT_CODES.splitlines()[1:]]
    assert set(codes) <= set(rows())
