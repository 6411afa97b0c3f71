"""Reads a YAML workflow file: the workflow, the queue and the triggers that come with it."""

from collections.abc import Iterator
from typing import Any

from pydantic_core import PydanticCustomError

from schemas.errors import Refused
from topology.expressions import STEP_VARIABLES, compile_condition
from topology.lexing import PathParts
from topology.names import hint, id_from_name
from topology.parts import Parts
from topology.problems import Problems, validate
from topology.queues import DEFAULT_QUEUE, queue_of_workflow
from topology.references import Reference
from topology.steps import NOT_UNDONE, ConnectorStep, SleepStep, parse_use
from topology.templates import compile_template
from topology.triggers import TriggerSpec, WorkflowTrigger, triggers_of_workflow
from topology.workflows import ConcurrencySpec, WorkflowFile, WorkflowSpec
from topology.yaml_source import Document, Path


def read_workflow_file(document: Document, *, dev: bool) -> Parts:
    """Raises Problems."""
    parts = Parts()
    file = validate(WorkflowFile, document.value, document)
    parts.errors.extend(_repeated_ids(file, document))
    parts.errors.extend(_unknown_steps(file, document))
    parts.warnings.extend(_without_undoing(file, document))
    workflow_id = id_from_name("wf_", file.name)
    triggers = _triggers(file.trigger, workflow_id, file.version, document)
    queue_id, queue_parts = queue_of(file.name, file.queue, file.concurrency, document)
    parts.merge(queue_parts)
    spec = WorkflowSpec.model_validate(
        {
            "name": file.name,
            "workflowId": workflow_id,
            "version": file.version,
            "label": label_of(file.version, dev=dev),
            "kind": "yaml",
            "description": file.description,
            "steps": file.steps,
            "output": file.output,
            "concurrency": file.concurrency,
            "queueId": queue_id,
            "triggers": [trigger.id for trigger in triggers],
            "deadline": file.deadline,
        }
    )
    parts.declared.append((spec, document.place(("name",))))
    parts.declared.extend((trigger, document.place(("trigger",))) for trigger in triggers)
    parts.references.extend(_references(file, document))
    return parts


def label_of(version: int, *, dev: bool) -> str:
    """A version's label. While developing, the server counts saves on: `3-dev.1`, `3-dev.2`."""
    return f"{version}-dev" if dev else str(version)


def queue_of(
    name: str, queue: str | None, concurrency: ConcurrencySpec | None, document: Document
) -> tuple[str, Parts]:
    """The workflow's queue, with what it adds: a queue of its own, or a reference. Raises Problems."""
    parts = Parts()
    if queue is not None and concurrency is not None:
        found = "`concurrency` makes the workflow's own queue, so `queue` cannot stand beside it; keep one"
        raise Problems([Refused("E_SPEC_INVALID", found, document.key_place(("queue",)))])
    if concurrency is not None:
        place = document.key_place(("concurrency",))
        made = queue_of_workflow(name, concurrency.max)
        parts.declared.append((made, place))
        key = concurrency.partition_key
        if key is not None and not compile_template(key).expressions:
            parts.warnings.append(
                f"{document.place(('concurrency', 'partitionKey'))}: the partition key `{key}` is the same "
                "for every run, so they run one by one; write a template such as {{ input.orderId }}"
            )
        return made.id, parts
    if queue is not None:
        parts.references.append(Reference("queue", queue, document.place(("queue",))))
        return queue, parts
    return DEFAULT_QUEUE, parts


def _triggers(
    declared: WorkflowTrigger | None, workflow_id: str, version: int, document: Document
) -> list[TriggerSpec]:
    if declared is None:
        return []
    try:
        return triggers_of_workflow(declared, workflow_id, version)
    except PydanticCustomError as error:
        context = error.context or {}
        place = document.place(("trigger", *context.get("path", ())))
        raise Problems([Refused(error.type, str(context.get("text", "")), place)]) from error


def _repeated_ids(file: WorkflowFile, document: Document) -> Iterator[Refused]:
    first: dict[str, int] = {}
    for index, step in enumerate(file.steps):
        place = document.place(("steps", index, "id"))
        if step.id in first:
            message = f"the step id `{step.id}` stands already in line {first[step.id]}; every step has its own"
            yield Refused("E_DUPLICATE_STEP_ID", message, place)
        first.setdefault(step.id, place.line)


def _references(file: WorkflowFile, document: Document) -> Iterator[Reference]:
    for index, step in enumerate(file.steps):
        if isinstance(step, SleepStep):
            continue
        if isinstance(step, ConnectorStep):
            place = document.place(("steps", index, "uses"))
            yield Reference("connector", step.target.connector_id, place, step.target.operation)
        if step.compensate is not None:
            undo = parse_use(step.compensate)
            place = document.place(("steps", index, "compensate"))
            yield Reference("connector", undo.connector_id, place, undo.operation)


def _without_undoing(file: WorkflowFile, document: Document) -> Iterator[str]:
    for index, step in enumerate(file.steps):
        if not isinstance(step, SleepStep) and step.compensate is not None:
            yield f"{document.key_place(('steps', index, 'compensate'))}: {NOT_UNDONE}"


def _unknown_steps(file: WorkflowFile, document: Document) -> Iterator[Refused]:
    """Templates that read a step which is not there, or which runs only later."""
    known: list[str] = []
    for index, step in enumerate(file.steps):
        for key in ("if", "with", "params"):
            yield from _check_steps(document, ("steps", index, key), known, is_bare=key == "if")
        known.append(step.id)
    yield from _check_steps(document, ("output",), known, is_bare=False)


def _check_steps(document: Document, base: Path, known: list[str], *, is_bare: bool) -> Iterator[Refused]:
    if not document.has(base):
        return
    for path, text in _texts(document.at(base), base):
        expressions = (
            (compile_condition(text).expression,) if is_bare else compile_template(text, STEP_VARIABLES).expressions
        )
        for expression in expressions:
            for read in expression.paths:
                if len(read) > 1 and read[0] == "steps" and read[1] not in known:
                    offset = max(0, text.find(expression.text.strip()))
                    yield Refused("E_EXPRESSION", _no_step(read, known), document.text_place(path, offset))


def _no_step(read: PathParts, known: list[str]) -> str:
    name = str(read[1])
    return f"no step `{name}` comes before this{hint(name, known)}"


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))
