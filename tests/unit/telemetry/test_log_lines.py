"""Log lines: JSON, one a line, whoever logs; and no line holds a secret that its writer did not think of."""

import json
import subprocess
import sys

SCRIPT = """
import logging
import structlog
from ops.composition.logging import configure_logging

configure_logging("info")
log = structlog.get_logger("part")
log.info("called", url="https://p.example/?csrf-token=hunter2", clientSecret="hunter2", token=7, trigger_id="trg_x")
log.warning("answered", headers={"X-Api-Key": ["hunter2"], "n": 1}, line='printed "webhook-secret": "hunter2"')
logging.getLogger("library").warning("no route to postgresql://maria:hunter2@db.example/a44")
try:
    raise ValueError("password=hunter2")
except ValueError:
    log.exception("failed", idempotency_key="order:7")
"""


def test_h05_no_style_of_a_secrets_name_gets_its_value_into_the_log() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    assert b"hunter2" not in done.stderr
    called, answered, routed, failed = map(json.loads, done.stderr.splitlines())
    assert called["url"] == "https://p.example/?csrf-token=[redacted]"
    assert (called["clientSecret"], called["token"], called["trigger_id"]) == ("[redacted]", 7, "trg_x")
    assert answered["headers"] == {"X-Api-Key": ["[redacted]"], "n": 1}
    assert routed["event"] == "no route to postgresql://[redacted]@db.example/a44"
    assert failed["idempotency_key"] == "order:7"
    assert "ValueError: password=[redacted]" in failed["exception"]
