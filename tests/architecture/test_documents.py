"""The pages say what the code does: links lead somewhere, and nothing that must be told is left out."""

import ast
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr

from ops.settings import Settings
from schemas.errors import CODES
from tests.support.documents import Page, page, pages
from tests.support.sources import ROOT
from topology.publication import read_files

NOT_SETTINGS = {
    "A44_URL", "A44_TOKEN", "A44_PROJECT", "A44_PROFILE", "A44_HOME", "A44_CONFIG",
    "A44_TEST_POSTGRES_DSN", "A44_TEST_KAFKA", "A44_TEST_BROKER",
    "A44_CRASH_POINT", "A44_CRASH_MARK",
}  # fmt: skip
ADR_HEADINGS = ["Context", "Decision", "What lost", "Consequences"]


@pytest.mark.parametrize("read", pages(), ids=lambda found: found.name)
def test_every_link_of_a_page_leads_somewhere(read: Page) -> None:
    lost = []
    for link in read.links:
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        path = (read.path.parent / target).resolve() if target else read.path
        if not path.exists():
            lost.append(link)
        elif anchor and anchor not in Page(path, path.read_text("utf-8")).anchors:
            lost.append(f"{link} (no such heading)")
    assert not lost


def test_every_page_in_docs_is_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        if path in seen or path.suffix != ".md" or not path.is_file():
            continue
        seen.add(path)
        links = Page(path, path.read_text("utf-8")).links
        waiting += [(path.parent / link.partition("#")[0]).resolve() for link in links if "://" not in link]
    missing = [read.name for read in pages() if read.path not in seen]
    assert not missing


def test_every_setting_stands_in_the_page_with_its_default() -> None:
    rows = {row[0].strip("`"): row for row in page("docs/configuration.md").rows("Settings")}
    assert list(rows) == list(Settings.model_fields)
    wrong = {}
    for name, field in Settings.model_fields.items():
        told = rows[name][1].strip("`")
        if field.default_factory is not None or name == "python":
            continue  # depends on the machine, and is told in words
        default = field.default.get_secret_value() if isinstance(field.default, SecretStr) else field.default
        expected = "none" if default in ("", None) else f"{default:g}" if isinstance(default, float) else str(default)
        if not told.lower().startswith(expected.lower()):
            wrong[name] = (told, expected)
    assert not wrong


def test_every_variable_that_a_page_names_exists() -> None:
    known = {f"A44_{name.upper()}" for name in Settings.model_fields} | NOT_SETTINGS
    unknown = {
        (read.name, name)
        for read in pages()
        for name in re.findall(r"\bA44_[A-Z_]*[A-Z]\b", read.text)
        if name not in known and not name.startswith("A44_SECRET")
    }
    assert not unknown


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[=\[;<> ]", requirement)[0] for requirement in requirements}


def test_every_direct_dependency_has_its_line_and_no_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    told = page("docs/dependencies.md")
    for heading, asked in (
        ("The service", project["project"]["dependencies"]),
        ("Development", project["dependency-groups"]["dev"]),
    ):
        rows = told.rows(heading)
        assert [row[0].strip("`") for row in rows] == sorted(_names(asked), key=str.lower)
        assert all(len(row) == len(("package", "need", "why", "left")) and all(row) for row in rows)


def test_the_list_of_errors_is_the_list_of_codes() -> None:
    rows = page("docs/errors/README.md").rows()
    told = [(re.sub(r"\[(\w+)\].*", r"\1", row[0]), row[1], row[2]) for row in rows]
    assert told == [(name, str(code.status), code.title) for name, code in sorted(CODES.items())]


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_page_of_an_error_says_what_is_seen_and_what_to_do(code: str) -> None:
    read = page(f"docs/errors/{code}.md")
    assert "\n## What to do\n" in read.text
    assert "\n## What you see\n" in read.text
    assert read.blocks
    opening = " ".join(read.text.partition("\n## ")[0].splitlines()[2:])
    assert len(opening) > len(CODES[code].title)
    assert set(re.findall(r"HTTP (\d{3})", opening)) <= {str(CODES[code].status)}


def test_every_decision_has_its_headings_and_stands_in_the_list() -> None:
    listed = re.findall(r"\((\d{4}-[a-z0-9-]+\.md)\)", page("docs/adr/README.md").text)
    found = sorted(path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert listed == found
    for number, name in enumerate(found, start=1):
        read = page(f"docs/adr/{name}")
        assert read.text.startswith(f"# {number:04} ")
        assert re.findall(r"^## (.+)$", read.text, re.MULTILINE) == ADR_HEADINGS, name


def test_every_make_target_is_told_and_every_told_one_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*?## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    told = {row[0].strip("`").removeprefix("make ") for row in page("CONTRIBUTING.md").rows("Make targets")}
    assert told == targets
    lines = [line for read in pages() for _, text in read.blocks for line in text.splitlines()]
    named = {match[1] for text in [*lines, *(one for read in pages() for one in read.inline)]
             if (match := re.match(r"(?:\$ )?make ([a-z-]+)", text))}  # fmt: skip
    assert named <= targets


def test_every_table_of_the_log_stands_in_the_architecture_and_no_other() -> None:
    scripts = "".join(path.read_text("utf-8") for path in (ROOT / "schemas/migrations").glob("*.sql"))
    made = set(re.findall(r"^create table automation\.(\w+)", scripts, re.MULTILINE))
    rows = page("docs/architecture.md").rows("Tables")
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row[0])} == made


def _check_python(text: str) -> None:
    ast.parse(text)
    if "@workflow(" in text:
        read_files({"page.py": text})


def _check_yaml(text: str) -> None:
    found = yaml.safe_load(text)
    if isinstance(found, list) or found.keys() & {"steps", "connectors", "triggers", "queues"}:
        read_files({"page.yaml": text})


CHECKS: dict[str, Callable[[str], object]] = {"python": _check_python, "yaml": _check_yaml, "toml": tomllib.loads}


@pytest.mark.parametrize("read", [found for found in pages() if found.blocks], ids=lambda found: found.name)
def test_blocks_of_code_can_be_read_and_workflows_in_them_published(read: Page) -> None:
    for language, text in read.blocks:
        if language in CHECKS:
            CHECKS[language](text)


def _shape(address: str) -> str:
    """An address without the names of its parameters."""
    return re.sub(r"\{+[^}]*\}+", "{}", address)


def test_every_address_of_the_gateway_stands_in_the_page_of_the_api() -> None:
    source = (ROOT / "processors/gateway/app.py").read_text("utf-8")
    told = {
        (match[1], _shape(match[2]))
        for row in page("docs/guides/rest-api.md").rows()
        for match in re.finditer(r"`(GET|POST) (/[^`?]+)`", row[0])
    }
    plain = source.replace("{_API}", "/v1/automation").replace("(_HOOK,", '("/v1/{project}/{trigger}",')
    routes = {(match[1].upper(), _shape(match[2])) for match in re.finditer(r'\b(get|post)\(f?"(/[^"]+)"', plain)}
    assert told == routes
