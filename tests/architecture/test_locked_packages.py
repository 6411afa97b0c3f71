"""The locks hold names, versions and hashes: no addresses, nothing loose, and what the projects ask for."""

import re
import tomllib

import pytest

from tests.support.sources import ROOT

LOCKS = ("requirements.lock", "requirements.uv.lock")
REQUIREMENT = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+?)( ; [^\\]+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def pins(lock: str) -> dict[str, str]:
    found = {}
    for line in (ROOT / lock).read_text("utf-8").splitlines():
        if match := REQUIREMENT.match(line):
            found[match[1]] = match[2]
    return found


def plain(requirement: str) -> tuple[str, str]:
    """Name and version of a pinned requirement, as the lock writes them."""
    name, _, version = requirement.partition(";")[0].strip().partition("==")
    return re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower(), version


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_is_names_versions_and_hashes_and_nothing_else(lock: str) -> None:
    lines = (ROOT / lock).read_text("utf-8").splitlines()
    odd = [line for line in lines if not (line.startswith("#") or REQUIREMENT.match(line) or HASH.match(line))]
    assert not odd
    assert not [line for line in lines if "//" in line or "@" in line]


def test_the_lock_has_what_the_projects_ask_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    sdk = tomllib.loads((ROOT / "sdk/pyproject.toml").read_text("utf-8"))
    assert sdk["project"]["dependencies"] == []
    asked = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    asked += [*project["build-system"]["requires"], *sdk["build-system"]["requires"]]
    locked = pins("requirements.lock") | {sdk["project"]["name"]: sdk["project"]["version"]}
    missing = {
        requirement: locked.get(name)
        for requirement in asked
        for name, version in [plain(requirement)]
        if locked.get(name) != version
    }
    assert not missing, f"run: make lock     asked for, and what the lock has: {missing}"


def test_the_java_side_names_no_repository() -> None:
    pom = (ROOT / "compose/kafka/pom.xml").read_text("utf-8")
    assert "repositor" not in pom
    assert "http" not in pom
