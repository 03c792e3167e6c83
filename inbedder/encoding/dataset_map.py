"""A function from a batch of a table's rows to their vectors, for ``map`` of Hugging Face datasets.

dataset.map(model.as_map("What is the complaint about?", column="text"), batched=True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inbedder.encoding.protocols import Encoder
from inbedder.errors import InputError, format_names


@dataclass(frozen=True)
class VectorMap:
    """Adds a column of vectors. It is pickled and hashed by the model's name and revision, never by its weights."""

    model: Encoder
    """What embeds."""
    revision: str
    """The key of its ``VectorSpec``, so that datasets forgets what another model or reading gave."""
    instruction: str | None
    """What is asked of every text."""
    column: str
    """The texts' column."""
    to: str
    """The vectors' column."""
    options: tuple[tuple[str, Any], ...]
    """Keywords of ``encode``."""

    def __call__(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Embed one row or a batch of rows.

        Args:
            rows: Column names and values.

        Returns:
            The new column: float32, shape (n, d), or (d,) for one row.

        Raises:
            InputError: When there is no such column.
        """
        if self.column not in rows:
            raise InputError(f"There is no column {self.column!r}. Name one with column=...: {format_names(list(rows))}.")
        options = {"show_progress_bar": False, **dict(self.options)}
        return {self.to: self.model.encode(rows[self.column], self.instruction, **options)}
