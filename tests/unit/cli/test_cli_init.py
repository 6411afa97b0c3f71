"""`a44 init`: a folder that works, and nothing overwritten."""

import json
import subprocess
import sys
from pathlib import Path

from tests.unit.cli.conftest import Command
from topology.publication import KnownNames, check_references, collect, read_files


def test_a_new_folder_can_be_published_as_it_is(a44: Command, tmp_path: Path) -> None:
    outcome = a44("init", "flows-of-mine")
    assert outcome.code == 0
    assert all(line.startswith("created  ") for line in outcome.out.splitlines())
    publication = read_files(collect([tmp_path / "flows-of-mine"]))
    check_references(publication, KnownNames())
    assert {workflow.workflow_id: workflow.kind for workflow in publication.workflows} == {
        "wf_order_paid": "yaml",
        "wf_welcome": "code",
    }
    assert not publication.warnings


def test_the_tests_of_a_new_folder_pass(a44: Command, tmp_path: Path) -> None:
    a44("init", ".")
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "discover", "tests"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_the_sample_event_is_json(a44: Command, tmp_path: Path) -> None:
    a44("init", ".")
    assert json.loads((tmp_path / "events" / "order-paid.json").read_text())["orderId"]


def test_what_exists_is_kept_and_listed(a44: Command, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "welcome.py").symlink_to(tmp_path / "nowhere.py")
    found = a44("init", ".", "--json").document
    assert found["kept"] == ["README.md", "flows/welcome.py"]
    assert (tmp_path / "README.md").read_text() == "mine"
    assert not (tmp_path / "nowhere.py").exists()
    again = a44("init", ".", "--json").document
    assert again["created"] == []
    assert sorted(again["kept"]) == sorted(found["created"] + found["kept"])


def test_a_file_where_a_folder_should_be_is_refused(a44: Command, tmp_path: Path) -> None:
    (tmp_path / "flows").write_text("a file")
    outcome = a44("init", ".")
    assert outcome.code == 2
    assert "not a folder" in outcome.err
