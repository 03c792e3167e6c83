"""The command line. Heavy imports wait until a command needs them, so that --help is instant."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from inbedder.cli.assign import assign
from inbedder.cli.cache import cache
from inbedder.cli.cluster import cluster
from inbedder.cli.compare_wordings import compare_wordings
from inbedder.cli.demo import demo
from inbedder.cli.embed import answer, embed
from inbedder.cli.models import app as models_app
from inbedder.cli.research import evaluate, finetune
from inbedder.cli.search import app as index_app
from inbedder.cli.search import search
from inbedder.cli.serve import serve
from inbedder.cli.shared_options import say
from inbedder.cli.signals import INTERRUPTED, TERMINATED, handle_signals

STOPPED = "Interrupted. No partial files were left behind."


class _Commands(TyperGroup):
    """The list of commands in plain text: importing rich for it takes as long as all the rest of ``inbedder --help``."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help as click does; commands keep rich's panels."""
        super(TyperGroup, self).format_help(ctx, formatter)


app = typer.Typer(
    name="inbedder",
    cls=_Commands,
    help="Text embeddings that follow an instruction, by answering it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _say_version(asked: bool) -> None:
    if asked:
        from inbedder import __version__

        typer.echo(f"inbedder {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and stop.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    """Text embeddings that follow an instruction, by answering it."""


for _command in (demo, embed, answer, cluster, assign, compare_wordings, cache, serve, search, finetune, evaluate):
    app.command()(_command)
app.add_typer(models_app, name="models")
app.add_typer(index_app, name="index")


def main() -> None:
    """Run the command line: exit code 0 ok, 1 failed, 2 usage, 130 Ctrl-C, 143 SIGTERM; tracebacks only with --debug."""
    from inbedder.errors import InbedderError

    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # peft imports it, and it misses kernels that nobody asked for
    for category in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):  # for whoever writes code, not for users
        warnings.filterwarnings("ignore", category=category)
    warnings.showwarning = lambda message, *_: say(f"warning: {message}")
    try:
        with handle_signals():
            app()
    except InbedderError as error:
        _fail(f"error: {error}")
    except KeyboardInterrupt:  # before typer looks out for it
        _fail(STOPPED, INTERRUPTED)
    except SystemExit as stop:
        if stop.code in (INTERRUPTED, TERMINATED):
            _fail(STOPPED, stop.code)
        raise
    except Exception as error:
        _fail(f"error: {type(error).__name__}: {error}\nUnexpected error. Rerun with `inbedder --debug ...` for a traceback.")


def _fail(message: str, code: int = 1) -> None:
    if "--debug" in sys.argv:
        import traceback

        traceback.print_exc()
    say(message)
    sys.exit(code)
