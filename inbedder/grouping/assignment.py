"""New texts in the groups of a kept grouping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import MissingExtraError
from inbedder.vectors import Vectors

if TYPE_CHECKING:
    import pandas as pd

UNFIT = 0.05
"""Texts of a lower typicality belong to no group."""


@dataclass(frozen=True, eq=False)
class Assignment:
    """New texts in the groups of a kept grouping."""

    texts: list[str]
    """The texts, n."""
    labels: NDArray[np.int64]
    """Nearest group of each text, shape (n,), also where it does not fit."""
    distances: Vectors
    """Distance of each text's vector, of length 1, to the centre of its group, shape (n,); 0 to 2."""
    typicality: Vectors
    """Share of the kept texts that lie as far from their centre, 0 to 1, shape (n,)."""
    answers: list[str]
    """What the model answered for each text; empty strings of a model that does not answer."""
    names: list[str]
    """Name of each text's group, n strings."""
    index: Any = None
    """Index of the texts where they came as a column of pandas; None for others."""

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether each text fits its group, shape (n,)."""
        fitting: NDArray[np.bool_] = self.typicality >= UNFIT
        return fitting

    def rows(self) -> list[dict[str, Any]]:
        """One table row per text.

        Returns:
            Rows of group (counted from 1, as in the page), group_name, answer, distance, typicality and fits.
        """
        columns = (self.labels.tolist(), self.names, self.answers, self.distances, self.typicality, self.fits.tolist())
        return [
            {
                "group": label + 1,
                "group_name": name,
                "answer": answer,
                "distance": round(float(distance), 4),
                "typicality": round(float(typicality), 4),
                "fits": fitting,
            }
            for label, name, answer, distance, typicality, fitting in zip(*columns, strict=True)
        ]

    def to_frame(self) -> pd.DataFrame:
        """The rows as a data frame, with the texts.

        Returns:
            Columns text, group, group_name, answer, distance, typicality, fits; its index is that of the texts where they were a
            column of pandas.

        Raises:
            MissingExtraError: When pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError("pandas", "mini") from error
        return pd.DataFrame([{"text": text, **row} for text, row in zip(self.texts, self.rows(), strict=True)], self.index)
