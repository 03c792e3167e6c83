"""Parameters that decorators add to commands, and groups of parameters that commands share as a dataclass."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, get_type_hints

from inbedder.runtime.user_paths import expand_path


def make_parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """Make a parameter for typer; ``annotation`` is an Annotated type with its Option."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def get_parameters(command: Callable[..., None]) -> list[inspect.Parameter]:
    """Return a command's parameters with their types."""
    return list(inspect.signature(command, eval_str=True).parameters.values())


def with_parameters(
    command: Callable[..., None], run: Callable[..., None], added: Sequence[inspect.Parameter], replaced: str | None = None
) -> Callable[..., None]:
    """Give a function the name, docstring and parameters of a command for typer, and further parameters.

    Args:
        command: The command.
        run: A function that takes keyword arguments and calls the command.
        added: The further parameters.
        replaced: The command's parameter that they replace; None adds them at the end.

    Returns:
        ``run``, which typer takes for a command with these parameters.
    """
    parameters: list[inspect.Parameter] = []
    for parameter in get_parameters(command):
        is_replaced = parameter.name == replaced
        parameters += added if is_replaced else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    parameters += added if replaced is None else []
    run = wraps(command)(run)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def with_expanded_arguments(command: Callable[..., None]) -> Callable[..., None]:
    """Expand ``~`` in a command's paths, and its parameters that are dataclasses into one parameter per field."""

    def run(**arguments: Any) -> None:
        command(**{name: _expand_paths(value) for name, value in arguments.items()})

    expanded = with_parameters(command, run, ())
    for parameter in get_parameters(command):
        if dataclasses.is_dataclass(parameter.annotation):
            expanded = _expand_group(expanded, parameter.name, parameter.annotation)
    return expanded


def _expand_group(command: Callable[..., None], name: str, group: Any) -> Callable[..., None]:
    types = get_type_hints(group, include_extras=True)
    fields = [make_parameter(field.name, types[field.name], field.default) for field in dataclasses.fields(group)]

    def run(**arguments: Any) -> None:
        values = {field.name: arguments.pop(field.name) for field in fields}
        command(**arguments, **{name: group(**values)})

    return with_parameters(command, run, fields, replaced=name)


def _expand_paths(value: Any) -> Any:
    if isinstance(value, list):
        return [_expand_paths(item) for item in value]
    return expand_path(value) if isinstance(value, Path) else value
