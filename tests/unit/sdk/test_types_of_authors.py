"""The package is typed: a type checker follows a step's result to its await, and knows what the clients answer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@pytest.mark.parametrize("module", ["authors_types.py", "clients_types.py"])
def test_a_type_checker_knows_what_steps_and_clients_return(tmp_path: Path, module: str):
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\nnamespace_packages = true\nexplicit_package_bases = true\n", "utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            f"--config-file={config}",
            f"--cache-dir={tmp_path / 'cache'}",
            str(HERE / module),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": f"{ROOT}{os.pathsep}{ROOT / 'sdk'}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "sdk/anthares44/automation/py.typed").is_file()
    assert not (ROOT / "sdk/anthares44/__init__.py").exists()
