"""The option ``--timings`` of long commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from inbedder.cli.shared_options import SPEED, print_message
from inbedder.runtime.timings import TIMINGS, Timings

TimingsFlag = Annotated[bool, typer.Option("--timings", help="Print where the time went.", rich_help_panel=SPEED)]


def with_timings(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--timings`` to a command.

    Args:
        command: A function for typer.

    Returns:
        A function with the same parameters and the option.
    """
    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("timings", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=TimingsFlag)
    parameters = [*signature.parameters.values(), option]

    @wraps(command)
    def run(*, timings: bool = False, **arguments: Any) -> None:
        if not timings:
            command(**arguments)
            return
        collected = Timings()
        token = TIMINGS.set(collected)
        try:
            command(**arguments)
        finally:
            TIMINGS.reset(token)
            print_message(collected.describe())

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
