"""Measures: what is in the vocabulary is counted somewhere, stands on its page, and alerts ask for nothing else."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from processors.ports.measures import MEASURES
from tests.support.sources import PRODUCT, ROOT, modules, name_of, parsed, texts

# Arguments of each method before the labels.
BEFORE_LABELS = {"count": 2, "set": 2, "forget": 1, "value": 1}
FROM_ELSEWHERE = {"instance", "job"}
WORDS = {"and", "or", "unless", "on", "ignoring", "by", "without", "group_left", "group_right", "bool", "offset"}


def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_metrics", ROOT / "docs" / "draw_metrics.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = drawing().rules()
    return found


def touched() -> Iterator[tuple[str, str, int | None]]:
    """Where, which measure, with how many labels (None: not told by the call itself), for every use in the product."""
    for path in modules(*PRODUCT):
        for node in ast.walk(parsed(path)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = node.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if node.func.attr not in BEFORE_LABELS or not name.endswith("measures"):
                continue
            spread = any(isinstance(one, ast.Starred) for one in node.args)
            labels = None if spread else max(len(node.args) - BEFORE_LABELS[node.func.attr], 0)
            for text in _names(node.args[0]):
                yield f"{name_of(path)}:{node.lineno}", text, labels


def _names(argument: ast.expr) -> list[str]:
    """The names that an argument may be: a text, or a choice of texts."""
    return [one.value for one in ast.walk(argument) if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def test_every_use_names_a_measure_with_its_labels() -> None:
    wrong = [
        (where, name, labels)
        for where, name, labels in touched()
        if name not in MEASURES or labels not in (None, len(MEASURES[name].labels))
    ]
    assert not wrong


def test_every_measure_is_taken_somewhere() -> None:
    """By its name in the call, or in a table beside it."""
    told = {
        text for path in modules(*PRODUCT) if path.name != "measures.py" for _, text in texts(path) if text in MEASURES
    }
    assert set(MEASURES) - told == set()


def test_names_say_their_kind() -> None:
    assert [name for name in MEASURES if not re.fullmatch(r"[a-z][a-z0-9_]+", name)] == []
    assert [name for name, one in MEASURES.items() if (one.kind == "counter") != name.endswith("_total")] == []


def test_the_committed_page_is_current() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    assert page == drawing().drawn(), "draw it again: python docs/draw_metrics.py"


def test_every_measure_and_alert_stands_on_the_page() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    assert [name for name in [*MEASURES, *(rule["alert"] for rule in rules())] if f"`{name}`" not in page] == []


def asked(expression: str) -> tuple[set[str], set[tuple[str, str]], set[str]]:
    """Of a PromQL expression: the metrics, the labels that stand in braces after one, the labels that it groups by."""
    matched = {
        (metric, label)
        for metric, inside in re.findall(r"(\w+)\{([^}]*)\}", expression)
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside)
    }
    grouped = {
        label.strip()
        for labels in re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expression)
        for label in labels.split(",")
    }
    plain = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring)\s*\([^)]*\)', " ", expression)
    names = set(re.findall(r"\b[a-z_][a-z0-9_]*\b(?!\s*\()", plain)) - WORDS
    return names, matched, grouped


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_measures_that_exist_and_says_a_way_out(rule: dict[str, Any]) -> None:
    names, matched, grouped = asked(rule["expr"])
    # A metric that only aggregation follows, as in `sum by (x) (metric)`, is found as well: it is no function.
    assert names
    assert names <= set(MEASURES)
    assert {label for metric, label in matched if label not in MEASURES[metric].labels} == set()
    labels = {label for name in names for label in MEASURES[name].labels} | FROM_ELSEWHERE
    assert grouped <= labels
    assert set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) <= labels
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert rule["annotations"]["summary"]
    assert len(rule["annotations"]["way_out"]) > len(rule["annotations"]["summary"])


def test_alerts_are_read_as_they_are_meant() -> None:
    """The reading of expressions above, on expressions whose answer is known."""
    assert asked('sum by (topic) (rate(x_total{code="a", by!="b"}[5m])) > 2') == (
        {"x_total"},
        {("x_total", "code"), ("x_total", "by")},
        {"topic"},
    )
    assert asked('label_replace(vector(1), "role", "x", "", "") unless on (role) (role_up == 1)') == (
        {"role_up"},
        set(),
        {"role"},
    )
    assert asked("max(a_seconds) > 1 and on () b_total")[0] == {"a_seconds", "b_total"}


def test_names_of_alerts_are_one_each() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
