"""What can be told of a Python workflow's steps without running it.

Certain mistakes are refused with their place; what only may go wrong becomes a warning. A thing that
cannot be read (an id from a variable, `**options`) is left to the run itself.
"""

import ast
from collections.abc import Iterator
from typing import Any

from schemas.errors import Place, Refused
from topology.code_workflows.captures import Capture, captures_in
from topology.code_workflows.source import SDK, PythonFile
from topology.durations import parse_seconds
from topology.problems import Problems, validate
from topology.steps import NOT_UNDONE, RetrySpec

LONGEST_ID = 128

_UNREADABLE = object()
_RUN, _SLEEP = f"{SDK}.step.run", f"{SDK}.step.sleep"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

_CHANGES_ON_REPLAY = {
    "time.time": "ctx.now()",
    "time.time_ns": "ctx.now()",
    "datetime.datetime.now": "ctx.now()",
    "datetime.datetime.utcnow": "ctx.now()",
    "datetime.datetime.today": "ctx.now()",
    "datetime.date.today": "ctx.now()",
    "random.random": "ctx.random()",
    "random.randint": "ctx.random()",
    "random.choice": "ctx.random()",
    "random.uniform": "ctx.random()",
    "uuid.uuid1": "ctx.uuid()",
    "uuid.uuid4": "ctx.uuid()",
}


def check_steps(module: PythonFile) -> list[Refused]:
    """Faults of every step call in the file, in order of appearance."""
    faults: list[Refused] = []
    calls = step_calls(module)
    for call, meaning in calls:
        faults.extend(_check_call(module, call, meaning))
    watched = frozenset(id(call) for call, meaning in calls if meaning == _RUN)
    faults.extend(_capture_fault(module, found) for found in captures_in(module.tree, watched))
    return sorted(faults, key=lambda fault: (fault.place.line, fault.place.column) if fault.place else (0, 0))


def warn_of_steps(module: PythonFile) -> list[str]:
    """What is taken of a step and has no effect."""
    undoing = [_argument(call, None, "compensate") for call, _ in step_calls(module)]
    found = [node for node in undoing if node is not None and _literal(node) is not None]
    return [f"{module.place(node)}: {NOT_UNDONE}" for node in found]


def check_body(module: PythonFile, body: ast.AsyncFunctionDef) -> tuple[list[Refused], list[str]]:
    """Faults and warnings of a workflow's own code, outside of the functions that its steps run."""
    faults: list[Refused] = []
    warnings: list[str] = []
    for node in _own_nodes(body):
        if isinstance(node, ast.Attribute | ast.Name) and module.meaning(node) == "asyncio.as_completed":
            found = "`asyncio.as_completed` gives another order on replay; use `step.as_completed`"
            faults.append(Refused("E_SPEC_INVALID", found, module.place(node)))
        if isinstance(node, ast.Call):
            instead = _CHANGES_ON_REPLAY.get(module.meaning(node.func))
            if instead:
                warnings.append(
                    f"{module.place(node)}: `{module.meaning(node.func)}()` gives another value on replay; "
                    f"use `{instead}`, or call it inside a step"
                )
    warnings.extend(_repeated_ids(module, body))
    return faults, warnings


def step_calls(module: PythonFile) -> list[tuple[ast.Call, str]]:
    """Calls of `step.run` and `step.sleep`, under whatever names they were imported."""
    calls = [node for node in ast.walk(module.tree) if isinstance(node, ast.Call)]
    found = [(call, module.meaning(call.func)) for call in calls]
    return [(call, meaning) for call, meaning in found if meaning in (_RUN, _SLEEP)]


def _check_call(module: PythonFile, call: ast.Call, meaning: str) -> Iterator[Refused]:
    identifier = _argument(call, 0, "step_id")
    if isinstance(identifier, ast.Constant):
        yield from _check_id(identifier.value, module.place(identifier))
    if meaning == _SLEEP:
        duration = _argument(call, 1, "duration")
        if duration is not None:
            yield from _check_length(module, duration, may_be_zero=True)
        return
    timeout = _argument(call, None, "timeout")
    if timeout is None and not _has_unpacking(call):
        yield Refused("E_STEP_TIMEOUT_MISSING", _without_timeout(identifier), module.place(call))
    elif timeout is not None:
        if isinstance(timeout, ast.Constant) and timeout.value is None:
            yield Refused("E_STEP_TIMEOUT_MISSING", _without_timeout(identifier), module.place(timeout))
        else:
            yield from _check_length(module, timeout)
    retry = _argument(call, None, "retry")
    if retry is not None:
        yield from _check_retry(module, retry)
    exclusive = _argument(call, None, "exclusive")
    if exclusive is not None and _literal(exclusive) is not False:
        found = "`exclusive` is not available in this version: nobody could confirm the step; remove it"
        yield Refused("E_SPEC_INVALID", found, module.place(exclusive))


def _without_timeout(identifier: ast.expr | None) -> str:
    name = f"the step `{identifier.value!s}`" if isinstance(identifier, ast.Constant) else "this step"
    return f'{name} declares no timeout; add one, such as timeout="15s"'


def _argument(call: ast.Call, position: int | None, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is None or position >= len(call.args):
        return None
    before = call.args[: position + 1]
    return None if any(isinstance(argument, ast.Starred) for argument in before) else call.args[position]


def _has_unpacking(call: ast.Call) -> bool:
    return any(keyword.arg is None for keyword in call.keywords)


def _check_id(value: Any, place: Place) -> Iterator[Refused]:
    """The SDK's own rule, which allows more than a YAML file does."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ID or not value.isprintable() or value.isspace():
        found = f"`{str(value)[:80]!s}` is not a step id: 1 to {LONGEST_ID} printable characters"
        yield Refused("E_SPEC_INVALID", found, place)
    elif value.startswith("~"):
        found = f"the step id `{value}` begins with `~`, which is kept for the platform's own items"
        yield Refused("E_SPEC_INVALID", found, place)


def _check_length(module: PythonFile, node: ast.expr, *, may_be_zero: bool = False) -> Iterator[Refused]:
    value = _literal(node)
    if value is _UNREADABLE or (may_be_zero and value == 0):
        return
    try:
        parse_seconds(value)
    except ValueError as error:
        yield Refused("E_SPEC_INVALID", str(error), module.place(node))


def _check_retry(module: PythonFile, node: ast.expr) -> Iterator[Refused]:
    try:
        document = module.document(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return  # not written out: the run checks it
    if document.value is None:
        return
    try:
        validate(RetrySpec, document.value, document)
    except Problems as problems:
        yield from problems.errors


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _UNREADABLE


def _capture_fault(module: PythonFile, found: Capture) -> Refused:
    name = found.name
    message = (
        f"this lambda reads `{name}` when it runs, and by then the loop has moved on; "
        f"bind it when it is made: `{found.argument}=lambda *, {name}={name}: ...`"
    )
    return Refused("E_SPEC_INVALID", message, module.place(found.node))


def _own_nodes(body: ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Nodes of the body that run in the body: not those of functions and lambdas inside it."""
    stack: list[ast.AST] = list(reversed(body.body))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, _FUNCTIONS):
            stack.extend(reversed(list(ast.iter_child_nodes(node))))


def _repeated_ids(module: PythonFile, body: ast.AsyncFunctionDef) -> Iterator[str]:
    """An id that stands twice is right in two branches and wrong in a row: said, not refused."""
    inside = {id(node) for node in ast.walk(body)}
    first: dict[str, int] = {}
    for call, _ in step_calls(module):
        identifier = _argument(call, 0, "step_id")
        if id(call) not in inside or not isinstance(identifier, ast.Constant):
            continue
        name = str(identifier.value)
        if name in first:
            yield (
                f"{module.place(identifier)}: the step id `{name}` stands also in line {first[name]}; "
                "a run that reaches both is blocked (E_DUPLICATE_STEP_ID)"
            )
        first.setdefault(name, call.lineno)
