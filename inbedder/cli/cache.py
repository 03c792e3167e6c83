"""``inbedder cache``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inbedder.cli.shared_options import say

if TYPE_CHECKING:
    from inbedder.cache.store import Store

SHOWN = 20
"""Most damages that are listed one by one."""


def cache(
    action: Annotated[str, typer.Argument(help="info (what is kept), verify (check every entry) or clear (remove it).")],
    folder: Annotated[Path, typer.Argument(help="A folder given to --cache.")],
    repair: Annotated[bool, typer.Option("--repair", help="With verify: keep the whole entries alone, in a fresh file.")] = False,
) -> None:
    """Look at, check or remove kept vectors and answers."""
    from inbedder.cache.database import FILE
    from inbedder.cache.integrity import remove
    from inbedder.cache.store import Store

    if action not in ("info", "verify", "clear"):
        raise typer.BadParameter("choose info, verify or clear.", param_hint="ACTION")
    if not (folder / FILE).is_file():
        raise typer.BadParameter(f"{folder} holds no cache.", param_hint="FOLDER")
    if action == "clear":
        remove(folder / FILE)
        say(f"{folder}: removed.")
    elif action == "info":
        _show(Store(folder))
    else:
        _verify(Store(folder), folder, repair)


def _show(store: Store) -> None:
    for space in store.info():
        what, size = space["results"], space["bytes"] / 1e6
        if what == "vectors":
            what += f", {space['encoding']['pooling']}, layer {space['encoding']['layer']}"
        typer.echo(f"{space['entries']:9,d} entries {size:9.1f} MB  {space['model']} ({space['weights']}): {what}")
    usage = store.usage()
    limit = "no limit" if usage.limit is None else f"of at most {usage.limit / 1e6:,.1f} MB"
    oldest = "never used" if usage.oldest_use is None else f"oldest use {datetime.fromtimestamp(usage.oldest_use):%Y-%m-%d %H:%M}"
    typer.echo(f"{usage.size / 1e6:,.1f} MB on disk, {limit}; {oldest}.")


def _verify(store: Store, folder: Path, repair: bool) -> None:
    wrong = store.verify()
    for line in wrong[:SHOWN]:
        say(line)
    if len(wrong) > SHOWN:
        say(f"and {len(wrong) - SHOWN} more.")
    if not wrong:
        say(f"{folder}: every entry is whole.")
        return
    if repair:
        count = store.repair()
        if not store.verify():
            say(f"{folder}: repaired; {count:,} whole entries are kept.")
            return
        say(f"{folder}: not repaired. Remove it with: inbedder cache clear {folder}")
    raise typer.Exit(1)
