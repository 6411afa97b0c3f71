"""The page about the command line says what the code does; tests/architecture holds the commands and the settings."""

from pathlib import Path

from ops.cli.failures import EXIT_CODES

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def rows() -> dict[str, list[str]]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells}


def test_every_exit_code_stands_there() -> None:
    codes = [line.split()[0] for line in EXIT_CODES.splitlines()[1:]]
    assert set(codes) <= set(rows())
