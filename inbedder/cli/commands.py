"""How commands become parts of the command line, those of other distributions too.

A distribution adds a command as an entry point of the group ``inbedder.commands``: the command's name, and the app that
``make_app`` made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from inbedder.cli.parameters import with_expanded_arguments
from inbedder.cli.short_help import ShortHelpCommand, with_help_all
from inbedder.errors import InputError, format_install

DISTRIBUTIONS = {"finetune": "inbedder-finetune", "evaluate": "inbedder-evaluation"}
"""Commands of the project's other distributions."""


def add_command(app: typer.Typer, command: Callable[..., None], *examples: str) -> None:
    """Add a function as a command with a short and a long help, and examples below it."""
    heading = "Examples:\n\n" if len(examples) > 1 else "Example: "
    app.command(cls=ShortHelpCommand, epilog=heading + "\n\n".join(examples))(with_help_all(with_expanded_arguments(command)))


def make_app(command: Callable[..., None], *examples: str) -> typer.Typer:
    """Make the app of one command, for an entry point."""
    app = typer.Typer(add_completion=False)
    add_command(app, command, *examples)
    return app


class CommandGroup(TyperGroup):
    """The commands of all distributions. ``inbedder --help`` lists them in plain text, because rich would double its time."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Format the help as click does; commands keep rich's panels."""
        super(TyperGroup, self).format_help(ctx, formatter)

    def list_commands(self, ctx: Any) -> list[str]:
        """List the names of all commands."""
        return [*super().list_commands(ctx), *_find_entry_points()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name, or None for an unknown name."""
        if (command := super().get_command(ctx, cmd_name)) is not None:
            return command
        if (entry_point := _find_entry_points().get(cmd_name)) is not None:
            return typer.main.get_command(entry_point.load())
        if (distribution := DISTRIBUTIONS.get(cmd_name)) is not None:
            raise InputError(f"inbedder {cmd_name} is in {distribution}. Install it with: {format_install('', distribution)}")
        return None


@cache
def _find_entry_points() -> dict[str, EntryPoint]:
    return {entry_point.name: entry_point for entry_point in sorted(entry_points(group="inbedder.commands"))}
