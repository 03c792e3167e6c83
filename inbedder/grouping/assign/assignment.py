"""The assignment of new texts to the groups of a saved grouping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import import_extra
from inbedder.vectors.vectors import Vectors

if TYPE_CHECKING:
    import pandas as pd

MIN_TYPICALITY = 0.05
"""Minimum typicality of a text that fits its group."""


@dataclass(frozen=True, eq=False)
class Assignment:
    """New texts assigned to the groups of a saved grouping.

    Example:
        >>> from inbedder import Grouping, cluster
        >>> texts = ["I love cats", "I love dogs", "The parcel is late", "The parcel is lost"]
        >>> assignment = Grouping.of(cluster(texts, "What is it about?", k=2)).assign(["I love horses"])
        >>> assignment.labels.shape, list(assignment.rows()[0])[:3]
        ((1,), ['group', 'group_name', 'answer'])
    """

    texts: list[str]
    """n texts."""
    labels: NDArray[np.int64]
    """Nearest group of each text, int64, shape (n,), even if the text does not fit it."""
    distances: Vectors
    """Distance of each text's vector, scaled to length 1, to the centre of its group, float32, shape (n,), 0 to 2."""
    typicality: Vectors
    """Share of the stored texts that lie at least as far from their centre, float32, shape (n,), 0 to 1."""
    answers: list[str]
    """The model's answer for each text, n strings; empty if the model does not answer."""
    names: list[str]
    """Name of the nearest group of each text, n strings."""
    index: Any = None
    """Index of the texts if they were a pandas column; None otherwise."""

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether each text fits its group, bool, shape (n,)."""
        is_fitting: NDArray[np.bool_] = self.typicality >= MIN_TYPICALITY
        return is_fitting

    def rows(self) -> list[dict[str, Any]]:
        """Return one table row per text.

        Returns:
            n rows of group (counted from 1, as in the report), group_name, answer, distance, typicality and fits.
        """
        columns = (self.labels.tolist(), self.names, self.answers, self.distances, self.typicality, self.fits.tolist())
        return [
            {
                "group": label + 1,
                "group_name": name,
                "answer": answer,
                "distance": round(float(distance), 4),
                "typicality": round(float(typicality), 4),
                "fits": is_fitting,
            }
            for label, name, answer, distance, typicality, is_fitting in zip(*columns, strict=True)
        ]

    def to_frame(self) -> pd.DataFrame:
        """Return the texts and rows as a data frame.

        Returns:
            Columns text, group, group_name, answer, distance, typicality and fits; texts from a pandas column keep its index.

        Raises:
            MissingExtraError: If pandas is not installed.
        """
        return import_extra("pandas", "tables").DataFrame(
            [{"text": text, **row} for text, row in zip(self.texts, self.rows(), strict=True)], self.index
        )
