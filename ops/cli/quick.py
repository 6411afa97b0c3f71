"""Commands that start quickly: arguments become values without loading pydantic.

typer 0.29 builds a pydantic adapter for every argument of the command that runs, and for `--help` itself,
which costs 230 ms before the first line of the command. The types that `a44` uses are converted here
instead; every other type would still take typer's way.
"""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

_NUMBERS: dict[type, str] = {int: "a whole number", float: "a number"}


class PlainValue:
    """Converts what was typed into one of the plain types; stands in for typer's adapter."""

    def __init__(self, kind: type, smallest: float | None, largest: float | None) -> None:
        self._kind = kind
        self._smallest = smallest
        self._largest = largest

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if param.multiple or param.nargs == -1:
            return [self._one(item, param, ctx) for item in value]
        return self._one(value, param, ctx)

    def _one(self, value: Any, param: Any, ctx: Any) -> Any:
        if isinstance(value, self._kind):
            return value
        if self._kind is str:
            return str(value)
        try:
            number = self._kind(value)
        except ValueError as exc:
            raise typer.BadParameter(f"{value!r} is not {_NUMBERS[self._kind]}", ctx=ctx, param=param) from exc
        if not self._within(number):
            raise typer.BadParameter(f"{value} is not {self._bounds()}", ctx=ctx, param=param)
        return number

    def _within(self, number: float) -> bool:
        above = self._smallest is None or number >= self._smallest
        return above and (self._largest is None or number <= self._largest) and number == number  # noqa: PLR0124  NaN

    def _bounds(self) -> str:
        if self._largest is None:
            return f"at least {self._smallest:g}"
        return f"from {self._smallest or 0:g} to {self._largest:g}"


class QuickCommand(TyperCommand):
    """A command whose plain arguments are converted by `PlainValue`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            _replace_conversion(param)

    def get_help_option(self, ctx: Any) -> Any:
        return _replace_conversion(super().get_help_option(ctx))


class QuickGroup(TyperGroup):
    """A group whose own options are converted by `PlainValue`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            _replace_conversion(param)

    def get_help_option(self, ctx: Any) -> Any:
        return _replace_conversion(super().get_help_option(ctx))


def _replace_conversion(param: Any) -> Any:
    if not isinstance(param, TyperOption | TyperArgument):
        return param
    info = param.type_descriptor.parameter_info
    kind = _plain_kind(param.type_descriptor.annotation)
    if kind is not None and info.parser is None:
        value: Any = PlainValue(kind, info.min, info.max)
        param._runtime_param = value  # noqa: SLF001  typer has no public way to replace the conversion
    return param


def _plain_kind(annotation: Any) -> type | None:
    plain: dict[Any, type] = {str: str, list[str]: str, int: int, float: float, bool: bool}
    return plain.get(annotation)


def new_group(**settings: Any) -> typer.Typer:
    """A group of commands in the product's manner: plain help, its own errors, help where nothing is asked."""
    return typer.Typer(
        cls=QuickGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        add_completion=False,
        **settings,
    )


def command(
    group: typer.Typer, name: str, *, example: str, cls: type[QuickCommand] = QuickCommand
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Register a command with its example; its function answers the exit code."""
    shown = "\n".join(f"  {line}" for line in example.splitlines())
    epilog = f"\b\nExample:\n{shown}"

    def register(function: Callable[..., int]) -> Callable[..., int]:
        summary = (function.__doc__ or "").split("\n\n")[0].removesuffix(".")
        return group.command(name, cls=cls, epilog=epilog, short_help=summary)(function)

    return register
