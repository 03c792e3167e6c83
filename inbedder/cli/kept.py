"""``inbedder cache``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inbedder.cli.options import (
    say,
)


def cache(
    action: Annotated[str, typer.Argument(help="info (what is kept), verify (check every entry) or clear (remove it).")],
    folder: Annotated[Path, typer.Argument(help="A folder given to --cache.")],
    repair: Annotated[bool, typer.Option("--repair", help="With verify: drop damaged entries.")] = False,
) -> None:
    """Look at, check or remove kept vectors and answers."""
    from inbedder.cache import FILE, Store

    if action not in ("info", "verify", "clear"):
        raise typer.BadParameter("choose info, verify or clear.", param_hint="ACTION")
    if not (folder / FILE).is_file():
        raise typer.BadParameter(f"{folder} holds no cache.", param_hint="FOLDER")
    if action == "clear":
        Store(folder).clear()
        say(f"{folder}: removed.")
        return
    store = Store(folder)
    if action == "info":
        for space in store.info():
            what = "answers" if "answers" in space else f"vectors, {space['pooling']}, layer {space['layer']}"
            typer.echo(
                f"{space['entries']:9,d} entries {space['bytes'] / 1e6:9.1f} MB  {space['model']} ({space['revision']}): {what}"
            )
        return
    wrong = store.verify(remove=repair)
    for line in wrong:
        say(line)
    if wrong and not repair:
        raise typer.Exit(1)
    say(f"{folder}: {'repaired' if wrong else 'every entry is whole'}.")
