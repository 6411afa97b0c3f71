"""Runs of YAML workflows for tests: a spec from its text, a start, an action that a test drives."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from processors.ports.actions import ActionCall
from processors.ports.bodies import BodyStart, Past
from schemas.records import ErrorInfo
from topology.publication import read_files
from topology.workflows import WorkflowSpec

MOMENT = datetime(2026, 7, 19, 14, 2, 11, 884000, tzinfo=UTC)
RUN_ID = "run_01J9XQ7M4K0000000000000000"


def spec_of(steps: str, **parts: str) -> WorkflowSpec:
    """A published workflow with these steps (YAML text, not indented); `parts` are other keys."""
    indented = "\n".join(f"  {line}" for line in steps.strip("\n").splitlines())
    rest = "\n".join(f"{key}: {value}" for key, value in parts.items())
    return read_files({"flow.yaml": f"name: flow\nversion: 1\n{rest}\nsteps:\n{indented}\n"}).workflows[0]


def start_of(
    *,
    fence: int = 1,
    history: Sequence[Past] = (),
    go_until: float | None = None,
    given: str = '{"invoiceId":"inv_1"}',
    run_id: str = RUN_ID,
    definition_id: int = 1,
    generation: int = 1,
) -> BodyStart:
    return BodyStart(
        run_id=run_id, fence=fence, project_id="pj_shop", workflow_id="wf_flow", definition_id=definition_id,
        version="1", kind="yaml", generation=generation, input=given, started_at=MOMENT, idempotency_key="key-1",
        partition_key="cust_1", lane="lane_1", event_id="evt_1", event_type="billing.done", occurred_at=MOMENT,
        history=history, go_until=go_until,
    )  # fmt: skip


def past(
    seq: int,
    item: str,
    after: int,
    outcome: str | None = "succeeded",
    *,
    kind: str = "step",
    value: str | None = "1",
    error: ErrorInfo | None = None,
) -> Past:
    return Past(seq, item, kind, after, outcome, value if outcome == "succeeded" else None, error, MOMENT)


@dataclass
class DrivenAction:
    """Answers each call with what the test has queued: text to return, or an exception to raise.

    With nothing queued, a call waits until it is cancelled, and answers even then where the test says with what.
    """

    answers: list[str | BaseException] = field(default_factory=list)
    calls: list[ActionCall] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    answers_when_stopped: str | BaseException | None = None

    async def __call__(self, call: ActionCall) -> str:
        self.calls.append(call)
        self.called.set()
        if not self.answers:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.stopped.set()
                if self.answers_when_stopped is None:
                    raise
                self.answers.append(self.answers_when_stopped)
        answer: Any = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return str(answer)
