"""Authors install the SDK beside anything: it imports the standard library and itself, nothing else."""

import ast
import sys

from tests.support.sources import modules, name_of, parsed


def test_the_sdk_imports_the_standard_library_only() -> None:
    foreign = []
    for path in modules("sdk/anthares44"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                continue
            tops = {name.partition(".")[0] for name in names}
            foreign += [f"{name_of(path)}: {top}" for top in tops - sys.stdlib_module_names - {"anthares44"}]
    assert not foreign
