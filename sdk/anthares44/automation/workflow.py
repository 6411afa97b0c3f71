"""`@workflow("name", version=n)`: what a bundle declares, kept until the host asks for it by name.

A bundle may declare several workflows, and several versions of one.
"""

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from anthares44.automation.context import Context
from anthares44.automation.durations import Duration
from anthares44.automation.options import DeclarationError, check_concurrency, check_deadline, check_id

Body = Callable[[Context, Any], Coroutine[Any, Any, Any]]
_Function = TypeVar("_Function", bound=Callable[..., Coroutine[Any, Any, Any]])


@dataclass(frozen=True, slots=True)
class Workflow:
    name: str
    version: int
    body: Body
    concurrency: Mapping[str, Any] | None = None


_DECLARED: dict[tuple[str, int], Workflow] = {}


def workflow(
    name: str,
    *,
    version: int,
    concurrency: Mapping[str, Any] | None = None,
    trigger: Mapping[str, Any] | None = None,
    queue: str | None = None,
    description: str | None = None,
    deadline: Duration | None = None,
) -> Callable[[_Function], _Function]:
    """Declare `async def body(ctx, input)` as a version of a workflow; the function itself is unchanged.

    `version` is an integer from 1 up. `concurrency` is `{"max": n, "partition_key": "..."}`. `trigger`
    (`{"event": "a.b"}`), `queue` (`"q_..."`), `description` and `deadline` (`"30m"`, from when the event was accepted)
    are for publication, which reads and checks them from the source; here they only have to be of the right kind.
    """
    for option, value, kind in (
        ("trigger", trigger, Mapping),
        ("queue", queue, str),
        ("description", description, str),
    ):
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"workflow {name!r}: {option} must be a {kind.__name__}, not {value!r}")
    try:
        check_id(name)
        limits = check_concurrency(concurrency)
        check_deadline(deadline)
    except DeclarationError as error:
        raise ValueError(f"workflow {name!r}: {error}") from None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"workflow {name!r}: version must be an integer of at least 1, not {version!r}")

    def declare(body: _Function) -> _Function:
        if not inspect.iscoroutinefunction(body):
            raise TypeError(f"workflow {name!r}: the body must be `async def body(ctx, input)`")
        _check_parameters(name, body)
        known = _DECLARED.get((name, version))
        if known is not None and known.body.__code__ is not body.__code__:
            raise ValueError(f"workflow {name!r} version {version} is declared twice")
        _DECLARED[name, version] = Workflow(name, version, body, limits)
        return body

    return declare


def _check_parameters(name: str, body: Callable[..., Any]) -> None:
    try:
        inspect.signature(body).bind(None, None)
    except TypeError as error:
        raise TypeError(f"workflow {name!r}: the body must take (ctx, input): {error}") from None


def declared() -> list[Workflow]:
    """All workflows declared so far, in the order of their declaration."""
    return list(_DECLARED.values())


def find_workflow(name: str, version: str) -> Workflow | None:
    """The workflow for a published version: "4" is version 4, and so is "4-dev.2" (a draft of it)."""
    number, _, _ = version.partition("-")
    return _DECLARED.get((name, int(number))) if number.isdecimal() else None
