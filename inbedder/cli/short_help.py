"""Help in two lengths: ``--help`` shows the options that a person needs first, ``--help-all`` all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from inbedder.cli.parameters import get_parameters, make_parameter, with_parameters

SHOWS_ALL = "inbedder.shows_all_options"
"""Key of the context's ``meta``."""


class ShortHelpCommand(TyperCommand):
    """A command whose ``--help`` leaves out the options that have a panel of their own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; reject a long option with one dash, such as ``-by``, which click reads as ``-b y``."""
        names = {name for option in self.params for name in (*option.opts, *option.secondary_opts)}
        for argument in args[: args.index("--") if "--" in args else None]:
            name = argument.partition("=")[0]
            if name.startswith("-") and name not in names and f"-{name}" in names:
                raise typer.BadParameter(f"did you mean -{name}?", ctx, param_hint=name)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Format the help, short unless ``--help-all`` asks for all options."""
        epilog, params = self.epilog, self.params
        if any(option.name in ("instruction", "instructions") for option in params):
            self.epilog = "\n\n".join(part for part in (epilog, _list_named_instructions()) if part)
        if not ctx.meta.get(SHOWS_ALL):
            self.params = [option for option in params if getattr(option, "rich_help_panel", None) is None]
        try:
            super().format_help(ctx, formatter)
        finally:
            self.epilog, self.params = epilog, params


def with_help_all(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--help-all`` to a command that has options with a panel of their own."""
    infos = [info for parameter in get_parameters(command) for info in getattr(parameter.annotation, "__metadata__", ())]
    if all(getattr(info, "rich_help_panel", None) is None for info in infos):
        return command

    def run(*, help_all: bool = False, **arguments: Any) -> None:
        command(**arguments)

    return with_parameters(command, run, [make_parameter("help_all", HelpAll, False)])


def _print_all(ctx: typer.Context, is_requested: bool) -> None:
    if is_requested:
        ctx.meta[SHOWS_ALL] = True
        typer.echo(ctx.get_help(), color=ctx.color)
        raise typer.Exit


HelpAll = Annotated[
    bool, typer.Option("--help-all", is_eager=True, callback=_print_all, help="Show all options and exit.", show_default=False)
]


def _list_named_instructions() -> str:
    from inbedder.prompting.templates import read_prompts

    return "Named instructions: " + ", ".join(f"@{name}" for name in read_prompts("instructions")) + "."
