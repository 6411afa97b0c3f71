"""Finds `@workflow("name", version=N)` functions and reads what the decorator declares, from literals."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from schemas.errors import Place, Refused
from topology.code_workflows.source import SDK, PythonFile
from topology.names import hint
from topology.problems import Problems, validate
from topology.shapes import Length, QueueId, Spec, Text, WorkflowName
from topology.triggers import WholeVersion, WorkflowTrigger
from topology.workflows import ConcurrencySpec
from topology.yaml_source import Document, Path, Spot

_OPTIONS = ("name", "version", "description", "trigger", "concurrency", "queue", "deadline")
_WRITTEN_OUT = "is read without running the file, so it must be written out here"
# The decorator is Python, so its keys may be too.
_CAMEL = {
    "partition_key": "partitionKey",
    "require_idempotency_key": "requireIdempotencyKey",
    "max_concurrency": "maxConcurrency",
}

Model = TypeVar("Model", bound=Spec)
Part = TypeVar("Part")


class _Header(Spec):
    name: WorkflowName
    version: WholeVersion
    description: Text | None = None
    queue: QueueId | None = None
    deadline: Length | None = None


@dataclass(frozen=True)
class CodeWorkflow:
    """A declared workflow. `places` are those of its options, `place` is the decorator's."""

    name: str
    version: int
    description: str | None
    queue: str | None
    deadline: float | None
    trigger: WorkflowTrigger | None
    concurrency: ConcurrencySpec | None
    place: Place
    places: dict[str, Place]


def declares_workflow(module: PythonFile) -> bool:
    return any(True for _ in _decorated(module))


def workflow_bodies(module: PythonFile) -> list[ast.AsyncFunctionDef]:
    """The decorated functions, also of declarations that cannot be read."""
    return [node for node, _ in _decorated(module) if isinstance(node, ast.AsyncFunctionDef)]


def read_declarations(module: PythonFile) -> tuple[list[CodeWorkflow], list[Refused]]:
    """The workflows of the file that can be read, and the faults of the others."""
    found: list[CodeWorkflow] = []
    faults: list[Refused] = []
    top_level = {id(node) for node in module.tree.body}
    for function, decorator in _decorated(module):
        try:
            found.append(_read(module, function, decorator, is_top_level=id(function) in top_level))
        except Problems as problems:
            faults.extend(problems.errors)
    return found, faults


def _decorated(module: PythonFile) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ast.expr]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                callee = decorator.func if isinstance(decorator, ast.Call) else decorator
                if module.meaning(callee) == f"{SDK}.workflow":
                    yield node, decorator


def _read(
    module: PythonFile,
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    decorator: ast.expr,
    *,
    is_top_level: bool,
) -> CodeWorkflow:
    place = module.place(decorator)
    if not isinstance(decorator, ast.Call):
        raise _problem('write `@workflow("name", version=1)`: the name and the version are missing', place)
    if not is_top_level:
        raise _problem("a workflow must stand at the top level of its file", place)
    if not isinstance(function, ast.AsyncFunctionDef):
        raise _problem(f"the body of a workflow is `async def {function.name}(ctx, input)`", module.place(function))
    options = _options(module, decorator)
    header = {
        name: _literal(module, name, node).value for name, node in options.items() if name in _Header.model_fields
    }
    places = {name: module.place(node) for name, node in options.items()}
    document = _header_document(module, decorator, header, options)
    faults: list[Refused] = []
    read = _gathering(faults, lambda: validate(_Header, header, document))
    trigger = _gathering(faults, lambda: _part(module, "trigger", options, WorkflowTrigger))
    concurrency = _gathering(faults, lambda: _part(module, "concurrency", options, ConcurrencySpec))
    if read is None or faults:
        raise Problems(faults)
    return CodeWorkflow(
        read.name,
        read.version,
        read.description,
        read.queue,
        read.deadline,
        trigger,
        concurrency,
        place,
        places,
    )


def _gathering(faults: list[Refused], read: Callable[[], Part]) -> Part | None:
    try:
        return read()
    except Problems as problems:
        faults.extend(problems.errors)
        return None


def _problem(message: str, place: Place) -> Problems:
    return Problems([Refused("E_SPEC_INVALID", message, place)])


def _options(module: PythonFile, decorator: ast.Call) -> dict[str, ast.expr]:
    options: dict[str, ast.expr] = {}
    if decorator.args:
        options["name"] = decorator.args[0]
    if len(decorator.args) > 1:
        raise _problem("only the name comes by position; write `version=1`", module.place(decorator.args[1]))
    for keyword in decorator.keywords:
        if keyword.arg is None:
            raise _problem(f"`**` {_WRITTEN_OUT}", module.place(keyword.value))
        if keyword.arg not in _OPTIONS:
            near = hint(keyword.arg, _OPTIONS)
            raise _problem(f"`{keyword.arg}` is not an option of a workflow{near}", module.place(keyword.value))
        options[keyword.arg] = keyword.value
    return options


def _literal(module: PythonFile, name: str, node: ast.expr) -> Document:
    try:
        return module.document(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise _problem(f"`{name}` {_WRITTEN_OUT}", module.place(node)) from error


def _header_document(
    module: PythonFile, decorator: ast.Call, header: dict[str, object], options: dict[str, ast.expr]
) -> Document:
    values: dict[Path, Spot] = {(): module.spot(decorator)}
    for name, node in options.items():
        values[name,] = module.spot(node)
    return Document(module.file, module.source, header, values, {})


def _part(module: PythonFile, name: str, options: dict[str, ast.expr], model: type[Model]) -> Model | None:
    node = options.get(name)
    if node is None:
        return None
    document = _literal(module, name, node)
    if document.value is None:
        return None
    if name == "trigger" and isinstance(document.value, str):
        inner: dict[Path, Spot] = {(): module.spot(node), ("event",): module.spot(node)}
        document = Document(module.file, module.source, {"event": document.value}, inner, {})
    renamed = document.renamed(_CAMEL)
    return validate(model, renamed.value, renamed)
