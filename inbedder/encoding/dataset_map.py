"""A function from a batch of rows to their vectors, for ``map`` of Hugging Face datasets.

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
    """A function that adds a column of vectors. Its pickle and hash depend on the model's name and revision, not on weights."""

    model: Encoder
    """The model."""
    revision: str
    """The key of the model's ``VectorSpec``: datasets reuses no results of another model or other options."""
    instruction: str | None
    """The instruction for all texts."""
    column: str
    """The column of texts."""
    to: str
    """The new column of vectors."""
    options: tuple[tuple[str, Any], ...]
    """Keyword arguments of ``encode``."""

    def __call__(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Embed one row or a batch of rows.

        Args:
            rows: Column names and values.

        Returns:
            The new column: float32, shape (n, d), or (d,) for one row.

        Raises:
            InputError: If the column of texts is missing.
        """
        if self.column not in rows:
            raise InputError(f"There is no column {self.column!r}. Choose one with column=...: {format_names(list(rows))}.")
        options = {"show_progress_bar": False, **dict(self.options)}
        return {self.to: self.model.encode(rows[self.column], self.instruction, **options)}
