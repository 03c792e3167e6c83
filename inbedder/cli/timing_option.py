"""The option ``--timings`` of long commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from inbedder.cli.parameters import make_parameter, with_parameters
from inbedder.cli.shared_options import SPEED, print_message
from inbedder.runtime.timings import TIMINGS, Timings

TimingsFlag = Annotated[bool, typer.Option("--timings", help="Print where the time went.", rich_help_panel=SPEED)]


def with_timings(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--timings`` to a command."""

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

    return with_parameters(command, run, [make_parameter("timings", TimingsFlag, False)])
