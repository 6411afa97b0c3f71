"""Which files of a disk are published."""

import os
from pathlib import Path

import pytest

from schemas.errors import Refused
from topology.publication import collect, read_files

FLOW = "name: {0}\nversion: 1\nsteps: [{{ id: a, uses: sleep, duration: 1s }}]\n"
CODE = """\
from anthares44.automation import workflow
import api
@workflow("c", version=1)
async def c(ctx, input):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def test_a_folder_gives_what_declares_something(folder: Path) -> None:
    write(
        folder,
        {
            "flows/a.yaml": FLOW.format("a"),
            "flows/deep/b.yml": FLOW.format("b"),
            "flows/shape.yaml": "- { id: q_a }\n",
            "flows/compose.yaml": "services: {}\n",
            "flows/c.py": CODE,
            "flows/api.py": "x = 1\n",
            "flows/tool.py": "x = 1\n",
            "flows/test_c.py": CODE,
            "flows/tests/d.yaml": FLOW.format("d"),
            "flows/.hidden/e.yaml": FLOW.format("e"),
            "flows/event.json": "{}",
            "flows/readme.md": "x",
        },
    )
    found = collect([Path("flows")])
    assert set(found) == {"flows/a.yaml", "flows/deep/b.yml", "flows/shape.yaml", "flows/c.py", "flows/api.py"}
    publication = read_files(found)
    assert [spec.name for spec in publication.workflows] == ["a", "b", "c"]
    assert set(publication.bundles[0].files) == {"c.py", "api.py"}


def test_a_folder_shows_the_errors_of_files_that_cannot_be_read(folder: Path) -> None:
    write(folder, {"a.yaml": "a: [", "c.py": "from anthares44.automation import (", "d.py": "def ("})
    assert set(collect([folder])) == {"a.yaml", "c.py"}


def test_named_files_are_taken_as_they_are(folder: Path) -> None:
    write(folder, {"a.yaml": "services: {}\n", "sub/test_c.py": CODE, "sub/api.py": "import more", "sub/more.py": ""})
    assert set(collect([Path("a.yaml"), folder / "sub" / "test_c.py"])) == {
        "a.yaml",
        "sub/test_c.py",
        "sub/api.py",
        "sub/more.py",
    }


def test_names_never_tell_where_the_folder_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"elsewhere/x.txt": "", "flows/a.yaml": FLOW.format("a"), "more/b.yaml": FLOW.format("b")})
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert set(collect([tmp_path / "flows" / "a.yaml"])) == {"a.yaml"}
    assert set(collect([tmp_path / "flows", tmp_path / "more"])) == {"flows/a.yaml", "more/b.yaml"}


@pytest.mark.parametrize("name", ["missing.yaml", "a.txt"])
def test_a_path_that_cannot_be_published_is_refused(folder: Path, name: str) -> None:
    write(folder, {"a.txt": "x"})
    with pytest.raises(Refused) as caught:
        collect([Path(name)])
    assert caught.value.code == "E_SPEC_INVALID"


def test_a_folder_without_definitions_is_refused(folder: Path) -> None:
    with pytest.raises(Refused, match="nothing to publish"):
        collect([folder])


def test_a_file_that_is_not_text_is_refused(folder: Path) -> None:
    (folder / "a.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(Refused, match="not UTF-8"):
        collect([Path("a.yaml")])


def test_a_pipe_is_refused_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    with pytest.raises(Refused, match="no regular file"):
        collect([folder / "pipe.yaml"])


def test_a_link_that_leads_out_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"secret/api.py": "x = 1\n", "flows/c.py": CODE})
    (tmp_path / "flows" / "api.py").symlink_to(tmp_path / "secret" / "api.py")
    monkeypatch.chdir(tmp_path / "flows")
    assert set(collect([Path("c.py")])) == {"c.py"}
