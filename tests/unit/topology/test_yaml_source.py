"""The YAML reader: what it takes, what it refuses, and that places are right."""

import pytest

from schemas.errors import Place, Refused
from topology.yaml_source import MAX_BYTES, MAX_DEPTH, read_yaml


def refusal(source: str) -> Refused:
    with pytest.raises(Refused) as caught:
        read_yaml("f.yaml", source)
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("12:30", "12:30"),
        ("2026-07-19", "2026-07-19"),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("+3", 3),
        ("1.0", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1_000", "1_000"),
        ("~", None),
        ("", None),
        ("null", None),
        ("True", True),
        ("'true'", "true"),
        ("1180591620717411303424", 2**70),
        ("<<", "<<"),
        ("+", "+"),
        ("-", [None]),
        (".", "."),
    ],
)
def test_plain_scalars_follow_the_core_schema(text: str, value: object) -> None:
    read = read_yaml("f.yaml", f"a:\n  {text}\n").value["a"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("source", "code", "line", "column"),
    [
        ("a: 1\nb: 2\na: 3\n", "E_DUPLICATE_KEY", 3, 1),
        ("o:\n  - {k: 1, k: 2}\n", "E_DUPLICATE_KEY", 2, 12),
        ('"a": 1\na: 2\n', "E_DUPLICATE_KEY", 2, 1),
        ("a: &x 1\n", "E_YAML", 1, 4),
        ("a: *x\n", "E_YAML", 1, 4),
        ("a: !!str 1\n", "E_YAML", 1, 4),
        ("a: !python/object:os.system {}\n", "E_YAML", 1, 4),
        ("%YAML 1.1\n---\na: 1\n", "E_YAML", 1, 1),
        ("# note\n%TAG ! tag:x,2000:\n---\na: 1\n", "E_YAML", 2, 1),
        ("a: 1\n---\nb: 2\n", "E_YAML", 2, 1),
        ("a: {{ input.x }}\n", "E_YAML", 1, 5),
        ("1: a\n", "E_YAML", 1, 1),
        ("? [a]\n: b\n", "E_YAML", 1, 3),
        ("a: .inf\n", "E_YAML", 1, 4),
        ("a: .nan\n", "E_YAML", 1, 4),
        ("a: 1e999\n", "E_YAML", 1, 4),
        ("a:\n\t- b\n", "E_YAML", 2, 1),
        ("a: 1\nb: \0\n", "E_YAML", 2, 4),
        ("a: '\ud800'\n", "E_YAML", 1, 5),
        ("a: b\x85c: d\n", "E_YAML", 1, 5),
        ("a: b\u2028c: d\n", "E_YAML", 1, 5),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused_at_its_place(source: str, code: str, line: int, column: int) -> None:
    error = refusal(source)
    assert (error.code, error.place) == (code, Place("f.yaml", line, column))


@pytest.mark.parametrize(
    "source",
    [
        "[" * 100_000,
        "{" * 100_000,
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "- " * 50_000,
        "? " * 50_000,
        "[a: " * 50_000,
        "a: " + "9" * 5000,
        "x" * (MAX_BYTES + 1),
        "é" * (MAX_BYTES // 2 + 1),
        "---\n" * 1000,
        "&a " * 1000,
        '"' + "a" * 100_000,
    ],
)
def test_hostile_documents_are_refused_and_not_worked_on(source: str) -> None:
    assert refusal(source).code == "E_YAML"


def test_a_billion_laughs_is_refused_at_its_first_anchor() -> None:
    laughs = "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(20))
    assert refusal(laughs).place == Place("f.yaml", 1, 4)


def test_the_depth_that_is_allowed_is_read() -> None:
    value = read_yaml("f.yaml", "[" * MAX_DEPTH + "]" * MAX_DEPTH).value
    for _ in range(MAX_DEPTH - 1):
        value = value[0]
    assert value == []


def test_a_byte_order_mark_moves_no_place() -> None:
    document = read_yaml("f.yaml", "\ufeffa: 1\n")
    assert document.place(("a",)) == Place("f.yaml", 1, 4)


@pytest.mark.parametrize(
    ("source", "needle"),
    [
        ("q: x {{ @ }}\n", "@"),
        ("q: 'x {{ @ }}'\n", "@"),
        ('q: "é {{ @ }}"\n', "@"),
        ("q: |\n  first\n    {{ @ }}\n", "@"),
        ("q: |-\n    {{ @ }}\n", "@"),
    ],
)
def test_a_place_inside_a_text_is_exact(source: str, needle: str) -> None:
    document = read_yaml("f.yaml", source)
    offset = document.value["q"].index(needle)
    row = next(number for number, text in enumerate(source.split("\n"), 1) if needle in text)
    column = source.split("\n")[row - 1].index(needle) + 1
    assert document.text_place(("q",), offset) == Place("f.yaml", row, column)


@pytest.mark.parametrize("source", ['q: "a\\n{{ @ }}"\n', "q: >\n  a\n  {{ @ }}\n", "q: 'it''s {{ @ }}'\n"])
def test_a_place_inside_a_folded_or_escaped_text_is_where_the_text_begins(source: str) -> None:
    document = read_yaml("f.yaml", source)
    assert document.text_place(("q",), document.value["q"].index("@")) == Place("f.yaml", 1, 4)


def test_a_place_that_is_missing_is_its_nearest_ancestors() -> None:
    document = read_yaml("f.yaml", "a:\n  b: 1\n")
    assert document.place(("a", "c", 3)) == Place("f.yaml", 2, 3)
