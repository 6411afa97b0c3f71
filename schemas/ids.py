"""Names: prefix + ULID for what happens (`evt_`, `run_`, `dlq_`), prefix + name for what is declared.

A run id is computed, never drawn: the same event of a project, trigger and operation version give the same
run id everywhere, so the primary key of the runs is what makes a run unique. Producers choose event ids of
their own, and two projects may choose the same one: wherever an event is known by its id, its project is part of it.
"""

import hashlib
import os
import re
from functools import lru_cache
from itertools import product

from ulid import base32

MAX_MILLIS = 2**48 - 1
DAY_MILLIS = 86_400_000

_ULID = "[0-7][0-9A-HJKMNP-TV-Z]{25}"
_PAIRS = [first + second for first, second in product(base32.ENCODE, repeat=2)]
_EVENT_ID = re.compile(f"evt_{_ULID}")
_RUN_ID = re.compile(f"run_{_ULID}")
_PROJECT_ID = re.compile(r"[a-z][a-z0-9_-]{1,62}")
_RESERVED_PROJECTS = frozenset({"automation"})  # hooks live at /v1/{project}, the API at /v1/automation


@lru_cache(maxsize=1024)
def _time_text(millis: int) -> str:
    if not 0 <= millis <= MAX_MILLIS:
        raise ValueError(f"{millis} ms lie outside the years that a ULID can tell")
    return base32.encode_timestamp(millis.to_bytes(6, "big"))


@lru_cache(maxsize=1024)
def _time_of(text: str) -> int:
    return int.from_bytes(base32.decode_timestamp(text), "big")


def _ulid(millis: int, randomness: bytes) -> str:
    """The 80 bits of randomness are written two characters at a time."""
    bits, pairs = int.from_bytes(randomness, "big"), _PAIRS
    return (
        f"{_time_text(millis)}{pairs[bits >> 70]}{pairs[bits >> 60 & 1023]}{pairs[bits >> 50 & 1023]}"
        f"{pairs[bits >> 40 & 1023]}{pairs[bits >> 30 & 1023]}{pairs[bits >> 20 & 1023]}{pairs[bits >> 10 & 1023]}"
        f"{pairs[bits & 1023]}"
    )


def new_event_id(millis: int) -> str:
    """Draw an event id for an instant (milliseconds of the Unix epoch, from the database's clock)."""
    return "evt_" + _ulid(millis, os.urandom(10))


def event_id_at(millis: int) -> str:
    """The first of all event ids of an instant."""
    return f"evt_{_time_text(millis)}{'0' * 16}"


def dead_letter_id(millis: int) -> str:
    """Draw a dead letter id for an instant (milliseconds of the Unix epoch)."""
    return "dlq_" + _ulid(millis, os.urandom(10))


def redrive_id(millis: int) -> str:
    """Draw an order's id for an instant (milliseconds of the Unix epoch)."""
    return "rdv_" + _ulid(millis, os.urandom(10))


def computed_dead_letter_id(millis: int, seed: bytes) -> str:
    """The dead letter id of a seed: the same one each time that it is made."""
    return f"dlq_{_time_text(millis)}{hashlib.sha256(seed).hexdigest()[:16].upper()}"


def event_millis(event_id: str) -> int | None:
    """Tell the time inside an event id of our form; None when a producer chose an id of its own form."""
    if _EVENT_ID.fullmatch(event_id) is None:
        return None
    return _time_of(event_id[4:14])


def run_id(project_id: str, event_id: str, trigger_id: str, operation_version: int, millis: int | None = None) -> str:
    """Compute the id of the run that a trigger makes of an event of a project.

    Its time is the event id's. `millis`, the stored time of acceptance, is needed where producers
    choose event ids: it stands in for an id without a time, and for one whose time lies over a day
    from acceptance (runs are stored by month of their id: an invented year has no place there).
    """
    told = event_millis(event_id)
    if told is None or (millis is not None and abs(told - millis) > DAY_MILLIS):
        if millis is None:
            raise ValueError(f"the event id {event_id!r} tells no time: pass the time of acceptance")
        told = millis
    seed = f"{project_id}\0{event_id}\0{trigger_id}\0{operation_version}".encode()
    return "run_" + _ulid(told, hashlib.sha256(seed).digest()[:10])


def run_id_range(first: int, last: int) -> tuple[str, str]:
    """The bounds, both within, of the ids of runs whose time lies from `first` to `last` (milliseconds)."""
    return f"run_{_time_text(first)}{'0' * 16}", f"run_{_time_text(last)}{'Z' * 16}"


def is_run_id(text: str) -> bool:
    return _RUN_ID.fullmatch(text) is not None


def is_project_id(text: str) -> bool:
    """Tell whether a project may have this name; it is a path segment beside `automation`."""
    return _PROJECT_ID.fullmatch(text) is not None and text not in _RESERVED_PROJECTS


def _declared(prefix: str, name: str) -> str:
    return prefix + name.replace("-", "_")


def workflow_id(name: str) -> str:
    """`invoice-settle` is `wf_invoice_settle`."""
    return _declared("wf_", name)


def queue_id(name: str) -> str:
    """`invoice-settle` is `q_invoice_settle`."""
    return _declared("q_", name)


def trigger_id(name: str) -> str:
    """`refund-large` is `trg_refund_large`."""
    return _declared("trg_", name)


def connector_id(name: str) -> str:
    """`payments` is `con_payments`."""
    return _declared("con_", name)
