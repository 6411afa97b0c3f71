"""Names of declared things: how they look, how one is made from another, which known one is nearest.

`invoice-settle` declares `wf_invoice_settle` and, with its own concurrency, `q_invoice_settle`.
"""

import difflib
import re
from collections.abc import Iterable

WORKFLOW_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
STEP_ID = re.compile(r"[a-z][a-z0-9_-]{0,63}")
OPERATION_NAME = re.compile(r"[a-z][A-Za-z0-9_-]{0,62}")
EVENT_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")
MAX_EVENT_TYPE = 200
FEW = 12  # known names that a message lists


def id_pattern(prefix: str) -> re.Pattern[str]:
    """What an id of the kind looks like, e.g. `trg_refund_large` for the prefix `trg_`."""
    return re.compile(re.escape(prefix) + r"[a-z0-9][a-z0-9_]{0,79}")


def id_from_name(prefix: str, name: str) -> str:
    """The id of a thing that is declared by name: `wf_` and `invoice-settle` give `wf_invoice_settle`."""
    return prefix + name.replace("-", "_")


def nearest(seen: str, known: Iterable[str]) -> str | None:
    """The known name that `seen` most likely stands for."""
    found = difflib.get_close_matches(seen[:200], list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def hint(seen: str, known: Iterable[str]) -> str:
    """A closing clause for a message: the nearest known name, else the known names, if few."""
    names = sorted(set(known))
    near = nearest(seen, names)
    if near is not None:
        return f"; did you mean `{near}`?"
    if names and len(names) <= FEW:
        return "; known here: " + ", ".join(f"`{name}`" for name in names)
    return ""
