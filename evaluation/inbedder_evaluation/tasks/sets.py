"""The registry of evaluation sets and of the tables that choose and report models: ``sets.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from inbedder.errors import InputError


@dataclass(frozen=True)
class KnownSet:
    """A set of ``sets.yaml``, in a file or on the hub."""

    name: str
    """Name, unique within its kind."""
    kind: str
    """Kind of task that uses it."""
    file: str | None = None
    """File of the (test) rows, in the data folder or shipped with the package."""
    shipped: bool = False
    """Whether the file comes with the package."""
    train: str | None = None
    """Training file in the data folder, if any."""
    hub: str | None = None
    """Hub id; used instead of a file."""
    revision: str | None = None
    """Commit of the hub's set."""
    config: str | None = None
    """Configuration of the hub's set, if it has several."""
    mteb: str | None = None
    """Name of an mteb task, which finds its data on the hub; used instead of a file or hub id."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Field of the set for each column of the task, where names differ."""
    contrasts: bool = True
    """For corpora: whether both criteria vary independently (a domain that follows from the intent does not)."""
    quoted: bool = True
    """Whether results may quote its texts."""
    licence: str = "see the hub"
    """Licence of the data."""
    citation: str = ""
    """Authors of the data."""

    @property
    def pinned(self) -> tuple[str, str]:
        """Hub id and commit."""
        assert self.hub is not None
        assert self.revision is not None
        return self.hub, self.revision


@dataclass(frozen=True)
class TableRow:
    """A set in a table of scores, measured under every wording of its questions."""

    kind: str
    """Kind of the set."""
    set: str
    """Name of the set."""
    scores: tuple[str, ...] = ()
    """For corpora: "clustering", "triplets" or both."""
    has_question: bool = True
    """Whether models get the questions; otherwise they encode texts without one."""


@cache
def _read_file() -> dict[str, Any]:
    return dict(yaml.safe_load(Path(__file__).with_name("sets.yaml").read_text(encoding="utf-8")))


@cache
def read_sets() -> tuple[KnownSet, ...]:
    """Read all sets of ``sets.yaml``, in file order."""
    kinds = {kind: sets for kind, sets in _read_file().items() if kind != "tables"}
    return tuple(KnownSet(name, kind, **fields) for kind, sets in kinds.items() for name, fields in sets.items())


def read_tables() -> dict[str, list[TableRow]]:
    """Read the rows of each table of ``sets.yaml``, by the table's name."""
    return {
        name: [TableRow(**row | {"scores": tuple(row.get("scores", ()))}) for row in rows]
        for name, rows in _read_file()["tables"].items()
    }


def find_set(kind: str, name: str) -> KnownSet:
    """Find a set by kind and name.

    Args:
        kind: A kind of ``sets.yaml``.
        name: Name of a set of this kind.

    Returns:
        The set.

    Raises:
        InputError: If there is no such set.
    """
    names = {known_set.name: known_set for known_set in read_sets() if known_set.kind == kind}
    if name not in names:
        raise InputError(f"Unknown {kind} {name!r}. Known: {', '.join(names)}.")
    return names[name]
