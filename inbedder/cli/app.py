"""The command-line interface. Commands import heavy modules only when they run, so that --help is fast."""

from __future__ import annotations

import atexit
import gc
import logging
import sys
import warnings
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from inbedder.cli.ask import ask
from inbedder.cli.assign import assign
from inbedder.cli.cache import cache
from inbedder.cli.classify import classify
from inbedder.cli.cluster import cluster
from inbedder.cli.codebook import codebook
from inbedder.cli.commands import CommandGroup, add_command
from inbedder.cli.compare_wordings import compare_wordings
from inbedder.cli.demo import demo
from inbedder.cli.embed import answer, embed
from inbedder.cli.groups import app as groups_app
from inbedder.cli.mcp import mcp
from inbedder.cli.models import app as models_app
from inbedder.cli.search import app as index_app
from inbedder.cli.search import search
from inbedder.cli.serve import serve
from inbedder.cli.shared_options import EscapingFormatter, is_debugging, print_message
from inbedder.cli.signals import INTERRUPTED, TERMINATED, handle_signals
from inbedder.cli.suggest import suggest
from inbedder.encoding.language_scope import check_language_once

SUMMARY = "Instruction-following text embeddings: a text's vector is a language model's answer to your question about it."
INTERRUPTED_MESSAGE = "Interrupted. No partial files were left behind."


app = typer.Typer(
    name="inbedder",
    cls=CommandGroup,
    help=SUMMARY,
    epilog="Example: inbedder demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from inbedder import __version__

        typer.echo(f"inbedder {__version__}")
        raise typer.Exit


@app.callback()
def _set_global_options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Take the options before the command."""


_EXAMPLES: dict[Callable[..., None], tuple[str, ...]] = {
    demo: ("inbedder demo",),
    embed: ('inbedder embed reviews.csv -i "What is the topic?" -o vectors.npy',),
    answer: ('inbedder answer reviews.csv -i "What is the topic?"',),
    cluster: (
        'inbedder cluster reviews.csv -i "What is the topic?" -o report.html',
        "inbedder cluster reviews.csv -i @topic -i @emotion --by stars --over date",
        "inbedder cluster reviews.csv -i @complaint -k 6 -o report.html -o groups.csv",
    ),
    classify: (
        'inbedder classify reviews.csv -i "What is it about?" --into food --into service',
        'inbedder classify reviews.csv -i "What is it about?" --into categories.csv --other',
        "inbedder classify reviews.csv --codebook codes.yaml --many",
    ),
    codebook: (
        'inbedder codebook answers.csv -i "What should be improved?" -o codes.yaml',
        "inbedder codebook --update codes.yaml new_answers.csv -o codes_2.yaml",
    ),
    assign: ("inbedder assign groups/ new_reviews.csv -o assigned.csv",),
    suggest: ("inbedder suggest reviews.csv -o questions.html",),
    compare_wordings: ('inbedder compare-wordings reviews.csv -i "Topic?" -i "What topic?"',),
    cache: ("inbedder cache info cache/",),
    serve: ("inbedder serve --model mini --port 8765",),
    mcp: ("inbedder mcp data/",),
    search: ('inbedder search index/ "flat battery" -i "What is the topic?"',),
    ask: ('inbedder ask index/ "What is the topic?" -o report.html',),
}
"""Examples of each command, in the order of ``inbedder --help``."""
for _command, _examples in _EXAMPLES.items():
    add_command(app, _command, *_examples)
app.add_typer(models_app, name="models")
app.add_typer(index_app, name="index")
app.add_typer(groups_app, name="groups")


def main() -> None:
    """Run the command line.

    Exit codes: 0 success, 1 failure, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM. Tracebacks are shown only with ``--debug``.
    """
    from inbedder.errors import OUT_OF_MEMORY, InbedderError, describe_error, is_out_of_memory

    atexit.register(gc.freeze)  # else the interpreter's last collection walks through all modules
    _replace_unencodable_characters()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # peft imports it, and it warns of kernels that are not needed
    for category in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):  # for developers, not for users
        warnings.filterwarnings("ignore", category=category)
    if logging.lastResort is not None:  # it prints what no other handler takes
        logging.lastResort.setFormatter(EscapingFormatter())
    warnings.showwarning = lambda message, *_: print_message(f"warning: {message}")
    try:
        with handle_signals(), check_language_once():
            _check_working_folder()
            app()
    except InbedderError as error:
        _exit_with_error(f"error: {error}" + f"\n{OUT_OF_MEMORY}" * is_out_of_memory(error))
    except KeyboardInterrupt:  # raised before typer handles it
        _exit_with_error(INTERRUPTED_MESSAGE, INTERRUPTED)
    except SystemExit as stop:
        if stop.code in (INTERRUPTED, TERMINATED):
            _exit_with_error(INTERRUPTED_MESSAGE, stop.code)
        raise
    except Exception as error:
        advice = "" if is_out_of_memory(error) else "\nUnexpected error. Rerun with `inbedder --debug ...` for a traceback."
        _exit_with_error(f"error: {describe_error(error)}{advice}")


def _check_working_folder() -> None:
    """Reject a working folder that was deleted, in which libraries fail in ways that mislead."""
    from inbedder.errors import InputError

    try:
        Path.cwd()
    except FileNotFoundError:
        raise InputError("The working folder was deleted. Change to another.") from None


def _replace_unencodable_characters() -> None:
    """Print a question mark for each character that the terminal's encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _exit_with_error(message: str, code: int = 1) -> None:
    if is_debugging():
        import traceback

        traceback.print_exc()
    print_message(message)
    sys.exit(code)
