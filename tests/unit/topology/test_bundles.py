"""Bundles: which files travel with a Python workflow, and their digest."""

import hashlib
import json

import pytest

from schemas.errors import Place, Refused
from topology.code_workflows.bundles import MAX_BYTES, digest_of
from topology.publication import Publication, read_files

ENTRY = """\
from anthares44.automation import workflow
{imports}
@workflow("w", version=1)
async def w(ctx, input):
    pass
"""


def publish(imports: str, **modules: str) -> Publication:
    files = {"flows/w.py": ENTRY.format(imports=imports)}
    files.update({"flows/" + name.replace("__", "/") + ".py": text for name, text in modules.items()})
    return read_files(files)


def bundled(imports: str, **modules: str) -> set[str]:
    (bundle,) = publish(imports, **modules).bundles
    return set(bundle.files) - {"w.py"}


def test_modules_beside_the_entry_travel_with_it() -> None:
    assert bundled("import api", api="import more", more="") == {"api.py", "more.py"}
    assert bundled("from api import x as y", api="") == {"api.py"}
    assert bundled("def f():\n    import api", api="") == {"api.py"}


def test_packages_travel_with_what_is_imported_of_them() -> None:
    package = {"lib__init": "", "lib__tools": "from . import deep", "lib__deep": ""}
    files = {f"flows/{name.replace('__', '/')}.py": text for name, text in package.items()}
    files["flows/lib/__init__.py"] = files.pop("flows/lib/init.py")
    files["flows/w.py"] = ENTRY.format(imports="from lib import tools")
    (bundle,) = read_files(files).bundles
    assert set(bundle.files) == {"w.py", "lib/__init__.py", "lib/tools.py", "lib/deep.py"}


def test_relative_imports_and_folders_without_init_are_followed() -> None:
    assert bundled("import a.b.c", a__b__c="from ..x import y", a__x="") == {"a/b/c.py", "a/x.py"}
    assert bundled("from a.b import c", a__b__c="from .. import x", a__x="") == {"a/b/c.py", "a/x.py"}


def test_circles_end() -> None:
    assert bundled("import a", a="import b", b="import a, w") == {"a.py", "b.py"}


def test_a_relative_import_that_leads_out_is_refused() -> None:
    for imports in ("from . import api", "from .. import api"):
        with pytest.raises(Refused) as caught:
            publish(imports, api="")
        assert (caught.value.code, caught.value.place) == ("E_BUNDLE_INVALID", Place("flows/w.py", 2, 1))


def test_a_broken_module_is_refused_in_its_own_file() -> None:
    with pytest.raises(Refused) as caught:
        publish("import api", api="def broken(:")
    assert caught.value.place is not None
    assert caught.value.place.file == "flows/api.py"


def test_a_file_that_nothing_imports_is_refused() -> None:
    with pytest.raises(Refused, match="no workflow imports the file"):
        publish("", alone="x = 1")


def test_a_bundle_has_a_bound() -> None:
    half = "x = 0\n" + "#" * (900 * 1024)
    with pytest.raises(Refused, match=str(MAX_BYTES)):
        publish("import a, b, c, d, e, f", **dict.fromkeys("abcdef", half))


def test_two_workflows_of_a_file_share_a_bundle() -> None:
    second = '@workflow("v", version=2)\nasync def v(ctx, input):\n    pass\n'
    publication = read_files({"w.py": ENTRY.format(imports="") + second})
    assert [spec.name for spec in publication.workflows] == ["w", "v"]
    assert len(publication.bundles) == 1
    assert {spec.bundle_digest for spec in publication.workflows} == {publication.bundles[0].digest}


def test_the_digest_is_that_of_names_and_texts() -> None:
    files = {"b.py": "é", "a.py": "x"}
    canonical = json.dumps([["a.py", "x"], ["b.py", "é"]], separators=(",", ":"))
    assert digest_of(files) == hashlib.sha256(canonical.encode()).hexdigest()
    assert digest_of({"a.py": "x", "b.py": "é"}) == digest_of(files)
    assert digest_of({"a.py": "xb.py", "": "é"}) != digest_of(files)


def test_where_a_file_lies_changes_no_digest() -> None:
    text = ENTRY.format(imports="import api")
    here = read_files({"w.py": text, "api.py": "x = 1"})
    there = read_files({"a/b/w.py": text.replace("\n", "\r\n"), "a/b/api.py": "\ufeffx = 1"})
    assert here.bundles[0].digest == there.bundles[0].digest
