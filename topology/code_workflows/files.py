"""Reads a Python file into what it publishes: workflows, their triggers and queues, and one bundle."""

from pathlib import PurePosixPath

from pydantic_core import PydanticCustomError

from schemas.errors import Place, Refused
from topology.code_workflows.bundles import Closure, ReadText, close_over, not_installed
from topology.code_workflows.checks import check_body, check_steps, warn_of_steps
from topology.code_workflows.declarations import CodeWorkflow, read_declarations, workflow_bodies
from topology.code_workflows.source import PythonFile
from topology.names import id_from_name
from topology.parts import Parts
from topology.problems import Problems
from topology.triggers import TriggerSpec, triggers_of_workflow
from topology.workflow_files import label_of, queue_of
from topology.workflows import WorkflowSpec
from topology.yaml_source import Document, Path, Spot


def read_code_file(module: PythonFile, read: ReadText, *, dev: bool) -> tuple[Parts, Closure]:
    """`read` gives the text of a file beside the module. Raises Problems or Refused."""
    parts = Parts()
    workflows, faults = read_declarations(module)
    parts.errors.extend(faults)
    closure = close_over(module, read)
    for inner in closure.modules.values():
        parts.errors.extend(check_steps(inner))
        parts.warnings.extend(warn_of_steps(inner))
    bundle = closure.bundle()
    parts.bundles.append(bundle)
    for name, place in not_installed(closure):
        parts.warnings.append(
            f"{place}: `{name}` is not beside this file and not in the standard library; "
            "it must be installed where steps run"
        )
    for body in workflow_bodies(module):
        errors, warnings = check_body(module, body)
        parts.errors.extend(errors)
        parts.warnings.extend(warnings)
    for workflow in workflows:
        parts.merge(_declare(module, workflow, bundle.digest, dev=dev))
    return parts, closure


def _declare(module: PythonFile, workflow: CodeWorkflow, digest: str, *, dev: bool) -> Parts:
    workflow_id = id_from_name("wf_", workflow.name)
    triggers = _triggers(workflow, workflow_id)
    document = _places(module, workflow)
    queue_id, parts = queue_of(workflow.name, workflow.queue, workflow.concurrency, document)
    spec = WorkflowSpec.model_validate(
        {
            "name": workflow.name,
            "workflowId": workflow_id,
            "version": workflow.version,
            "label": label_of(workflow.version, dev=dev),
            "kind": "code",
            "description": workflow.description,
            "bundleDigest": digest,
            "entry": PurePosixPath(module.file).name,
            "concurrency": workflow.concurrency,
            "queueId": queue_id,
            "triggers": [trigger.id for trigger in triggers],
            "deadline": workflow.deadline,
        }
    )
    parts.declared.append((spec, workflow.place))
    place = workflow.places.get("trigger", workflow.place)
    parts.declared.extend((trigger, place) for trigger in triggers)
    return parts


def _places(module: PythonFile, workflow: CodeWorkflow) -> Document:
    """The decorator's options as a document, for the places of what is wrong with them."""
    spots: dict[Path, Spot] = {(): _spot_of(workflow.place)}
    for name, place in workflow.places.items():
        spots[name,] = _spot_of(place)
    return Document(module.file, module.source, {}, spots, {})


def _spot_of(place: Place) -> Spot:
    return Spot(0, place.line - 1, place.column - 1)


def _triggers(workflow: CodeWorkflow, workflow_id: str) -> list[TriggerSpec]:
    if workflow.trigger is None:
        return []
    try:
        return triggers_of_workflow(workflow.trigger, workflow_id, workflow.version)
    except PydanticCustomError as error:
        message = str((error.context or {}).get("text", ""))
        raise Problems([Refused(error.type, message, workflow.places["trigger"])]) from error
