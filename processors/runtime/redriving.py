"""Which dead letters an order redrives, why others are left, and the run that a letter becomes. Of the
world outside only data in storage is asked for, through who calls.

A letter is told by its own fields and, where the filter asks, by its envelope. What cannot be run again is counted by
its cause, never passed over in silence.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec

from processors.ports.catalog import CatalogSnapshot
from processors.ports.redrives import Candidate, DueRedrive, NotRedriven, Redriven, Step, WaitingLetter
from processors.ports.runs import NewRun
from processors.runtime.matching import WEBHOOK, Miss, asked
from processors.runtime.new_runs import EventScope, run_again, scope_of, stale_at
from schemas.envelope import Envelope, decode_envelope, redriven, reference_of
from schemas.errors import Place, Refused, Unavailable
from schemas.stored_bodies import Reference
from topology.expressions import Filter, compile_letter_filter

MOST_REDRIVES = 5  # of one event, over all the letters that it has become
WARN_FROM = 2
TOO_OLD = "event_too_old"
# Codes of records whose filter has not said yes.
UNASKED = frozenset({"E_FILTER_ERROR", "E_STORAGE_UNAVAILABLE", "E_STORED_BODY_MISSING"})
FILTERED = "filtered"  # in the place of a code: nothing is wrong with the letter
_EXAMPLES = 5
_INSIDE = frozenset({"data", "event"})  # variables that need the envelope
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)/([smh])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Rules:
    """What a letter is held to besides the filter. `now` is when the order is given."""

    snapshot: CatalogSnapshot
    project_id: str
    now: datetime
    allow_stale: bool

    @cached_property
    def may_age(self) -> bool:
        """Whether any trigger of the project lets events grow too old: then their moments have to be read."""
        triggers = self.snapshot.triggers.items()
        return not self.allow_stale and any(
            one.spec.max_age is not None for (project, _), one in triggers if project == self.project_id
        )

    def cause(self, letter: Candidate) -> str | None:
        """Why a letter cannot be redriven."""
        if letter.workflow_id is None:
            return "never_accepted"
        if letter.redrive_count >= MOST_REDRIVES:
            return "redriven_too_often"
        if not self.allow_stale and (letter.reason == TOO_OLD or self._is_too_old(letter)):
            return "too_old"
        return None if (self.project_id, letter.workflow_id) in self.snapshot.latest else "not_published"

    def _is_too_old(self, letter: Candidate) -> bool:
        trigger = self.snapshot.triggers.get((self.project_id, letter.trigger_id or ""))
        if trigger is None or trigger.spec.max_age is None or letter.envelope is None:
            return False
        ends = stale_at(trigger, decode_envelope(letter.envelope.encode()))
        return ends is not None and self.now > ends


@dataclass(slots=True)
class Plan:
    """What an order comes to. `skipped` counts what matched and cannot be redriven, by cause; `left` is what would have
    been taken beyond `most`.
    """

    filter: Filter
    most: int
    rules: Rules
    scanned: int = 0
    matched: int = 0
    left: int = 0
    letters: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    often: int = 0

    @property
    def needs_envelopes(self) -> bool:
        return self._looks_inside or self.rules.may_age

    @property
    def _looks_inside(self) -> bool:
        return any(path[0] in _INSIDE for path in self.filter.expression.paths)

    @property
    def takes_everything(self) -> bool:
        """The filter asks nothing of a letter."""
        return not self.filter.expression.paths

    @property
    def examples(self) -> list[str]:
        return self.letters[:_EXAMPLES]

    def look_at(self, page: Sequence[Candidate]) -> None:
        """The next letters, in their order."""
        for letter in page:
            self.scanned += 1
            try:
                if not self.filter.passes(_scope(letter, is_whole=self._looks_inside)):
                    continue
            except Refused as refused:
                self.skipped[refused.code] += 1
                continue
            self.matched += 1
            self._take(letter)

    def _take(self, letter: Candidate) -> None:
        cause = self.rules.cause(letter)
        if cause is not None:
            self.skipped[cause] += 1
        elif len(self.letters) >= self.most:
            self.left += 1
        else:
            self.letters.append(letter.dead_letter_id)
            self.often += letter.redrive_count >= WARN_FROM


def letter_filter(text: str) -> Filter:
    """Raises Refused E_EXPRESSION with the line and column of the fault."""
    try:
        return compile_letter_filter(text)
    except Refused as refused:
        before = text[: int(str(refused.details.get("offset", 0)))]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        raise Refused(refused.code, refused.message, Place("filter", line, column)) from refused


def letters_a_second(text: str) -> float:
    """A rate such as `20/s`, `90/m`, `500/h`. Raises Refused E_INVALID_PARAMETER."""
    found = _RATE.fullmatch(text)
    if found is None or float(found[1]) == 0:
        raise Refused("E_INVALID_PARAMETER", f"the rate is {text[:40]!r}; expected one such as 20/s, 90/m or 500/h")
    return float(found[1]) / _SECONDS[found[2]]


async def step_of(
    snapshot: CatalogSnapshot,
    redrive: DueRedrive,
    letters: Sequence[WaitingLetter],
    read: Callable[[Reference], Awaitable[bytes]],
) -> Step:
    """What becomes of the letters whose turn it is. `read` brings data that lies in storage: templates may look at it,
    and a run of what cannot be read any more is not begun. While the storage is away, its letter and those behind wait.
    """
    done: list[Redriven] = []
    refused: list[NotRedriven] = []
    for letter in letters:
        try:
            envelope = _opened(letter)
            reference = reference_of(envelope)
            stored = None if reference is None else await read(reference)
            run = _new_run(snapshot, letter, envelope, redrive, stored)
            if run is None:
                refused.append(NotRedriven(letter.dead_letter_id, FILTERED))
            else:
                done.append(Redriven(letter.dead_letter_id, letter.run_id, run))
        except Refused as exc:
            refused.append(NotRedriven(letter.dead_letter_id, exc.code))
        except Unavailable:
            break
    return Step(redrive, done, refused)


def _opened(letter: WaitingLetter) -> Envelope:
    if letter.envelope is None:
        raise _gone(letter)
    return redriven(decode_envelope(letter.envelope.encode()))


def _new_run(
    snapshot: CatalogSnapshot, letter: WaitingLetter, envelope: Envelope, redrive: DueRedrive, stored: bytes | None
) -> NewRun | None:
    """None: its filter, which had not said anything, lets the event pass by now."""
    if letter.workflow_id is None or letter.trigger_id is None:
        raise _gone(letter)
    millis = int(redrive.created_at.timestamp() * 1000)
    make = _ask_again if letter.run_id is None and letter.error_code in UNASKED else run_again
    run = make(snapshot, envelope, letter.workflow_id, letter.trigger_id, millis=millis, stored=stored)
    if isinstance(run, Miss):
        return None
    return msgspec.structs.replace(run, stale_at=None) if redrive.allow_stale else run


def _ask_again(
    snapshot: CatalogSnapshot,
    envelope: Envelope,
    workflow_id: str,
    trigger_id: str,
    *,
    millis: int,
    stored: bytes | None,
) -> NewRun | Miss:
    """What its trigger, as it is now, makes of an event over which its filter had failed, or had not been asked. A
    webhook's door has asked.
    """
    trigger = snapshot.triggers.get((envelope.project_id, trigger_id))
    if trigger is None or trigger.workflow_id != workflow_id:
        raise Refused("E_TRIGGER_NOT_FOUND", f"the trigger {trigger_id} of {workflow_id} does not exist (any more)")
    if trigger.type == WEBHOOK:
        return run_again(snapshot, envelope, workflow_id, trigger_id, millis=millis, stored=stored)
    found = asked(snapshot, trigger, scope_of(envelope, stored), millis, None)
    if isinstance(found, Refused):
        raise found
    return found


def _gone(letter: WaitingLetter) -> Refused:
    return Refused("E_DEAD_LETTER_NOT_FOUND", f"{letter.dead_letter_id} is not there any more")


def _scope(letter: Candidate, *, is_whole: bool) -> Mapping[str, Any]:
    """What a filter may ask. Text that is not there is empty."""
    scope: dict[str, Any] = {
        "dead_letter_id": letter.dead_letter_id,
        "error_code": letter.error_code,
        "reason": letter.reason,
        "run_id": letter.run_id or "",
        "workflow_id": letter.workflow_id or "",
        "trigger_id": letter.trigger_id or "",
        "redrive_count": letter.redrive_count,
        "created_at": letter.created_at.isoformat().replace("+00:00", "Z"),
    }
    if is_whole and letter.envelope is not None:
        event = EventScope(decode_envelope(letter.envelope.encode())).event
        scope |= {"event": event, "data": {} if event["data"] is None else event["data"]}
    return scope
