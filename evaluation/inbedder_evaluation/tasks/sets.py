"""The registry of evaluation sets: ``sets.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml

from inbedder.errors import InputError


@dataclass(frozen=True)
class KnownSet:
    """A set of ``sets.yaml``: in a file or on the hub."""

    name: str
    """Its name, which is unique within its kind."""
    kind: str
    """Which kind of task measures on it."""
    file: str | None = None
    """File of the (test) rows, in the data folder or among the shipped ones."""
    shipped: bool = False
    """Whether the file comes with the package."""
    train: str | None = None
    """Training file in the data folder, where there is one."""
    hub: str | None = None
    """Id on the hub, in place of a file."""
    revision: str | None = None
    """Commit of the hub's set."""
    config: str | None = None
    """Configuration of the hub's set, where it has several."""
    mteb: str | None = None
    """Name of a task of mteb, which knows its data on the hub, in place of a file or an id."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The task's columns and the fields that hold them, where names differ."""
    contrasts: bool = True
    """Corpora: whether both criteria vary freely (a domain that its intents determine does not)."""
    quoted: bool = True
    """Whether results may quote its texts."""
    licence: str = "see the hub"
    """Licence of the data."""
    citation: str = ""
    """Who made it."""

    @property
    def pinned(self) -> tuple[str, str]:
        """Id and commit on the hub."""
        assert self.hub is not None
        assert self.revision is not None
        return self.hub, self.revision


@cache
def read_sets() -> tuple[KnownSet, ...]:
    """All sets of ``sets.yaml``, in its order."""
    content = yaml.safe_load(Path(__file__).with_name("sets.yaml").read_text(encoding="utf-8"))
    return tuple(KnownSet(name, kind, **fields) for kind, sets in content.items() for name, fields in sets.items())


def find_set(kind: str, name: str) -> KnownSet:
    """A set by kind and name.

    Args:
        kind: A kind of ``sets.yaml``.
        name: A name below it.

    Returns:
        The set.

    Raises:
        InputError: When there is none.
    """
    names = {known_set.name: known_set for known_set in read_sets() if known_set.kind == kind}
    if name not in names:
        raise InputError(f"Unknown {kind} {name!r}. Known: {', '.join(names)}.")
    return names[name]
