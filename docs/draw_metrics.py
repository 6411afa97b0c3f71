"""Draws docs/metrics.md from the vocabulary of measures and the alerting rules: `python docs/draw_metrics.py`.

A test compares the committed page with what this draws, so the page cannot fall behind the code.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "metrics.md"
RULES = ROOT / "ops" / "alerts" / "automation.rules.yml"
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from processors.ports.measures import MEASURES  # noqa: E402  found only with the path above

HEAD = """\
# Measures and alerts

Drawn by `docs/draw_metrics.py` from `processors/ports/measures.py` and `ops/alerts/automation.rules.yml`; change those,
then draw it again.

Set [`metrics_port`](configuration.md#settings) and a process answers on `http://127.0.0.1:<port>/metrics` in the text
format of Prometheus; with 0 the `ready` log line tells the address as `metrics`. A process has one set of measures,
whatever roles it runs. Values are read when they are asked for. Counters begin at 0 with each process; a gauge that is
not there is not known yet, or not known to this role. Beside what is below there are the process's own figures as
Prometheus' Python library takes them: `process_resident_memory_bytes`, `process_cpu_seconds_total`, `process_open_fds`,
`process_start_time_seconds`, `python_gc_collections_total`.

```yaml
# prometheus.yml
rule_files: [automation.rules.yml]
scrape_configs:
  - job_name: a44
    static_configs:
      - targets: ["127.0.0.1:9441", "127.0.0.1:9442"]
```
"""


def rules() -> list[dict[str, Any]]:
    """Every alerting rule, in the order of the file."""
    read = yaml.safe_load(RULES.read_text("utf-8"))
    return [rule for group in read["groups"] for rule in group["rules"]]


def drawn() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_measures(), "", *_alerts()]) + "\n"


def _measures() -> Iterator[str]:
    yield "## Measures"
    yield ""
    yield "| measure | kind | labels | what it says |"
    yield "|---|---|---|---|"
    for name, measure in MEASURES.items():
        labels = ", ".join(f"`{label}`" for label in measure.labels)
        yield f"| `{name}` | {measure.kind} | {labels or '-'} | {measure.help} |"


def _alerts() -> Iterator[str]:
    yield "## Alerts"
    yield ""
    yield "The rules are `ops/alerts/automation.rules.yml`: `page` is for now, `ticket` for today."
    yield "Thresholds are starts: they are yours to move."
    yield ""
    yield "| alert | severity | says | way out |"
    yield "|---|---|---|---|"
    for rule in rules():
        told = rule["annotations"]
        cells = (f"`{rule['alert']}`", rule["labels"]["severity"], _plain(told["summary"]), _plain(told["way_out"]))
        yield f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """In one line, with what Prometheus fills in as (name)."""
    filled = re.sub(r"\{\{ \$(?:labels\.)?(\w+) \}\}", r"(\1)", text)
    return " ".join(filled.split())


if __name__ == "__main__":
    PAGE.write_text(drawn(), "utf-8")
