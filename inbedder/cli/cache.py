"""The command ``inbedder cache``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inbedder.cli.shared_options import print_message, print_result

if TYPE_CHECKING:
    from inbedder.cache.store import Store

MAX_LISTED_DAMAGES = 20
"""Maximum number of damaged entries that are listed."""


def cache(
    action: Annotated[
        str, typer.Argument(help="info (print the contents), verify (check every entry) or clear (remove the cache).")
    ],
    folder: Annotated[Path, typer.Argument(help="Folder of the cache, as given to --cache.")],
    repair: Annotated[bool, typer.Option("--repair", help="With verify: rebuild the cache from its intact entries.")] = False,
) -> None:
    """Inspect, verify or clear a cache."""
    from inbedder.cache.database import DATABASE_FILE
    from inbedder.cache.integrity import remove
    from inbedder.cache.store import Store

    if action not in ("info", "verify", "clear"):
        raise typer.BadParameter("choose info, verify or clear.", param_hint="ACTION")
    if not (folder / DATABASE_FILE).is_file():
        raise typer.BadParameter(f"{folder} holds no cache.", param_hint="FOLDER")
    if action == "clear":
        remove(folder / DATABASE_FILE)
        print_message(f"{folder}: removed.")
    elif action == "info":
        _print_info(Store(folder))
    else:
        _verify(Store(folder), folder, repair)


def _print_info(store: Store) -> None:
    """Print the contents and the size of a cache."""
    for space in store.info():
        content, size = space["results"], space["bytes"] / 1e6
        if content == "vectors":
            content += f", {space['encoding']['pooling']}, layer {space['encoding']['layer']}"
        print_result(f"{space['entries']:9,d} entries {size:9.1f} MB  {space['model']} ({space['weights']}): {content}")
    usage = store.measure_usage()
    limit = "no limit" if usage.limit is None else f"of at most {usage.limit / 1e6:,.1f} MB"
    oldest = "never used" if usage.oldest_use is None else f"oldest use {datetime.fromtimestamp(usage.oldest_use):%Y-%m-%d %H:%M}"
    print_result(f"{usage.size / 1e6:,.1f} MB on disk, {limit}; {oldest}.")


def _verify(store: Store, folder: Path, repair: bool) -> None:
    """Check every entry of a cache and print the damaged ones; repair the cache if asked to."""
    damages = store.verify()
    for line in damages[:MAX_LISTED_DAMAGES]:
        print_message(line)
    if len(damages) > MAX_LISTED_DAMAGES:
        print_message(f"and {len(damages) - MAX_LISTED_DAMAGES} more.")
    if not damages:
        print_message(f"{folder}: every entry is intact.")
        return
    if repair:
        count = store.repair()
        if not store.verify():
            print_message(f"{folder}: repaired; {count:,} intact entries remain.")
            return
        print_message(f"{folder}: not repaired. Remove it with: inbedder cache clear {folder}")
    raise typer.Exit(1)
