"""The way of one run through its YAML steps: which request comes next, and what a delivery does to it.

Pure and deterministic: it knows the spec, the start and the deliveries so far, no clock and no tasks. One
request is open at a time. A skipped step and a sleep have the result null.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from processors.engine.requests import BodyEnd, BodyStatus, RetryPolicy, SkipRequest, SleepRequest, StepRequest
from processors.ports.bodies import BodyStart
from processors.runtime.yaml_body.failures import cancelled, error_of
from schemas.errors import Refused
from schemas.records import ErrorInfo, Status
from schemas.results import RUN_RESULT_BYTES, too_large, write
from topology.steps import ConnectorStep, SleepStep, SqlStep
from topology.workflows import WorkflowSpec

Step = ConnectorStep | SqlStep | SleepStep
Ask = StepRequest | SleepRequest | SkipRequest


@dataclass(frozen=True, slots=True)
class Delivery:
    """A recorded outcome. `value` is JSON text; None stands for null."""

    seq: int
    item: str
    outcome: str
    value: str | None
    error: ErrorInfo | None


class Walk:
    """`after` is the seq of the last delivery; `ask` and `end` are what the body wants now, one of them set."""

    def __init__(self, spec: WorkflowSpec, start: BodyStart) -> None:
        self.after = 0
        self.ask: Ask | None = None
        self.end: BodyEnd | None = None
        self._spec = spec
        self._start = start
        self._at = 0
        self._results: dict[str, str] = {}
        self._scope = _run_scope(start)
        self._advance()

    @property
    def step(self) -> Step:
        """The step that is asked for."""
        return self._spec.steps[self._at]

    def key_of(self, item: str) -> str:
        """The step's idempotency key: the same for every attempt, another in every generation."""
        return f"{self._start.run_id}:{item}:g{self._start.generation}"

    def scope_of(self, item: str) -> Mapping[str, Any]:
        """What the templates of a step see."""
        return {**self._scope, "step": {"id": item, "idempotency_key": self.key_of(item)}}

    def deliver(self, delivery: Delivery) -> None:
        """Take the outcome of what was asked and go on to the next request or the end."""
        self.after = delivery.seq
        self.ask = None
        if delivery.outcome in (Status.FAILED, Status.CANCELLED):
            self.end = BodyEnd(BodyStatus.FAILED, error=delivery.error or _unexplained(delivery))
            return
        text = delivery.value or "null"
        self._results[delivery.item] = text
        self._scope["steps"][delivery.item] = json.loads(text)
        self._at += 1
        self._advance()

    def close(self, cause: str) -> None:
        """End as cancelled, whatever was asked."""
        self.ask = None
        self.end = BodyEnd(BodyStatus.CANCELLED, error=cancelled(cause))

    def _advance(self) -> None:
        try:
            if self._at == len(self._spec.steps):
                self.end = BodyEnd(BodyStatus.SUCCEEDED, self._result())
            else:
                self.ask = self._request(self.step)
        except Refused as exc:
            self.end = BodyEnd(BodyStatus.FAILED, error=error_of(self._placed(exc)))

    def _placed(self, exc: Refused) -> Refused:
        """No record of a step tells where an expression between the steps stands: its message does."""
        if exc.code != "E_EXPRESSION":
            return exc
        where = "`output`" if self._at == len(self._spec.steps) else f"`if` of the step {self.step.id}"
        return Refused(exc.code, f"{where}: {exc.message}", exc.place, exc.details)

    def _request(self, step: Step) -> Ask:
        condition = step.condition
        if condition is not None and not condition.holds(self.scope_of(step.id)):
            return SkipRequest(step.id)
        if isinstance(step, SleepStep):
            return SleepRequest(step.id, step.duration)
        retry = step.retry
        policy = RetryPolicy(retry.max, retry.base, retry.cap, retry.strategy)
        return StepRequest(step.id, step.timeout, policy, compensate=step.compensate is not None)

    def _result(self) -> str:
        template = self._spec.output_template
        if template is None:
            return _joined(self._results)
        return write(template.render(self._scope), "the output of the run", RUN_RESULT_BYTES)


def _joined(results: Mapping[str, str]) -> str:
    """One object of recorded texts as they are: parsing and writing them again would gain nothing."""
    text = "{" + ",".join(f"{json.dumps(item)}:{value}" for item, value in results.items()) + "}"
    if len(text) > RUN_RESULT_BYTES:
        raise too_large("the results of all steps together", f"{len(text)} characters", RUN_RESULT_BYTES)
    return text


def _run_scope(start: BodyStart) -> dict[str, Any]:
    given = json.loads(start.input)
    event = {
        "id": start.event_id,
        "type": start.event_type,
        "idempotency_key": start.idempotency_key,
        "partition_key": start.partition_key,
        "occurred_at": start.occurred_at.isoformat().replace("+00:00", "Z"),
        "project_id": start.project_id,
        "data": given,
    }
    run = {
        "id": start.run_id,
        "idempotency_key": start.idempotency_key,
        "lane": start.lane,
        "workflow": start.workflow_id,
        "version": start.version,
    }
    return {"input": given, "event": event, "run": run, "steps": {}}


def _unexplained(delivery: Delivery) -> ErrorInfo:
    return ErrorInfo("E_STEP_FAILED", "StepFailed", f"the step {delivery.item} {delivery.outcome}", retryable=False)
