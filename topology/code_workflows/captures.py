"""Finds lambdas given to a step that would all see the last value of a loop.

Names are resolved as Python does: parameters and defaults of the lambda and of functions around it bind.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


@dataclass(frozen=True, slots=True)
class Capture:
    """A lambda, given as `argument`, that reads `name`, which a loop around it binds."""

    node: ast.Lambda
    argument: str
    name: str


@dataclass(slots=True)
class _Scope:
    """A function around the node: what it binds, and what the loops that are open in it bind."""

    bound: frozenset[str]
    loops: list[frozenset[str]] = field(default_factory=list)


def captures_in(root: ast.AST, calls: frozenset[int]) -> Iterator[Capture]:
    """Captures in the calls whose `id()` is in `calls`."""
    yield from _visit(root, [_Scope(frozenset())], calls)


def _visit(node: ast.AST, scopes: list[_Scope], calls: frozenset[int]) -> Iterator[Capture]:
    """Depth first with a stack of our own, so that deep trees do not end in a recursion error."""
    stack: list[tuple[ast.AST, list[_Scope]]] = [(node, scopes)]
    while stack:
        current, around = stack.pop()
        if isinstance(current, ast.Call) and id(current) in calls:
            yield from _captured_by(current, around)
        inner = around
        if isinstance(current, _FUNCTIONS):
            inner = [*around, _Scope(_bound_in(current))]
        elif isinstance(current, (*_LOOPS, *_COMPREHENSIONS)):
            innermost = around[-1]
            names = frozenset(_stored_names(current))
            inner = [*around[:-1], _Scope(innermost.bound, [*innermost.loops, names])]
        children = list(ast.iter_child_nodes(current))
        stack.extend((child, inner) for child in reversed(children))


def _captured_by(call: ast.Call, scopes: list[_Scope]) -> Iterator[Capture]:
    for keyword in call.keywords:
        if keyword.arg in ("fn", "compensate") and isinstance(keyword.value, ast.Lambda):
            for name in _free_names(keyword.value):
                if _is_loop_name(name, scopes):
                    yield Capture(keyword.value, keyword.arg, name)
                    break


def _is_loop_name(name: str, scopes: list[_Scope]) -> bool:
    for scope in reversed(scopes):
        if any(name in loop for loop in scope.loops):
            return True
        if name in scope.bound:
            return False
    return False


def _free_names(node: ast.Lambda) -> list[str]:
    bound = _parameters(node.args)
    inner = {name for part in ast.walk(node.body) for name in _bound_inside(part)}
    loaded = [part.id for part in ast.walk(node.body) if isinstance(part, ast.Name)]
    return [name for name in dict.fromkeys(loaded) if name not in bound and name not in inner]


def _bound_inside(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Lambda):
        yield from _parameters(node.args)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def _bound_in(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    names = set(_parameters(node.args))
    for statement in body:
        names.update(_stored_names(statement))
    return frozenset(names)


def _parameters(arguments: ast.arguments) -> frozenset[str]:
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return frozenset(argument.arg for argument in every)


def _stored_names(root: ast.AST) -> Iterator[str]:
    """Names that `root` binds in its own function: functions inside it bind their own."""
    stack: list[ast.AST] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        if isinstance(node, _FUNCTIONS) and node is not root:
            continue
        stack.extend(ast.iter_child_nodes(node))
