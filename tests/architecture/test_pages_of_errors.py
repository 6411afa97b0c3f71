"""Every error code has its page, and every page its code."""

from schemas.errors import CODES
from tests.support.sources import ROOT

PAGES = ROOT / "docs" / "errors"
NOT_A_CODE = {"README"}


def test_codes_and_pages_are_the_same_set() -> None:
    pages = {page.stem for page in PAGES.glob("*.md")} - NOT_A_CODE
    assert pages == set(CODES), (
        f"codes without a page: {sorted(set(CODES) - pages)}; pages without a code: {sorted(pages - set(CODES))}"
    )


def test_a_page_is_headed_by_its_code() -> None:
    wrong = [
        page.name
        for page in PAGES.glob("*.md")
        if page.stem not in NOT_A_CODE and not page.read_text("utf-8").startswith(f"# {page.stem}")
    ]
    assert not wrong
