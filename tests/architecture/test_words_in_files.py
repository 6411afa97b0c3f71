"""What no committed file may hold: paths of one machine, addresses of registries, unfinished business."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.sources import ROOT, name_of

# Broken by a % each, so that this file does not hold them either.
BROKEN = {
    "a path of one machine": (r"(?<![\w.~-])/(wo%rk|ro%ot|ho%me|Us%ers)/\w",),
    "an address of a registry": (
        r"py%pi\.org",
        r"python%hosted\.org",
        r"repo1?\.mav%en",
        r"npm%js\.org",
        r"deb\.deb%ian\.org",
    ),
    "unfinished business": (r"\bTO%DO\b", r"\bFIX%ME\b", r"\bX%XX\b"),
    "how it was made": (r"\bCla%ude\b", r"\bChat%GPT\b", r"\bAI assis%tant\b", r"\bissue #%\d"),
}
FORBIDDEN = {what: re.compile("|".join(broken).replace("%", "")) for what, broken in BROKEN.items()}
# Licence texts and hashes of others hold what they hold.
READ_PAST = {"LICENSE", "requirements.lock", "requirements.uv.lock"}


def committed() -> list[Path]:
    answer = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)  # noqa: S607
    if answer.returncode != 0:
        pytest.skip("not a git clone")
    return [ROOT / name for name in answer.stdout.decode().split("\0") if name]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_committed_file_holds(what: str) -> None:
    found = []
    for path in committed():
        if path.name in READ_PAST or not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", errors="replace")
        found += [f"{name_of(path)}: {match[0]}" for match in FORBIDDEN[what].finditer(text)]
    assert not found, f"{what}:\n" + "\n".join(found)
