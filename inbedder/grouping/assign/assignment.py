"""The assignment of new texts to the groups of a saved grouping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import import_extra
from inbedder.grouping.grouped_texts import LEFT_OUT
from inbedder.vectors.vectors import Vectors

if TYPE_CHECKING:
    import pandas as pd

MIN_TYPICALITY = 0.05
"""Minimum typicality of a text that fits its group by its vector."""


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
    fits: NDArray[np.bool_]
    """Whether each text fits its group, by its typicality or by an answer that agrees with the group, bool, shape (n,)."""
    questions: list[str] | None
    """Question of each text's group, answer and distance, n strings, if a group is split by another question; else None."""
    group_names: list[str]
    """Name of each group, k strings."""
    index: Any = None
    """Index of the texts if they were a pandas column; None otherwise."""

    @property
    def names(self) -> list[str]:
        """Name of the group of each text, n strings; "none of these" for a text that fits none."""
        return [self.group_names[label] if fits else LEFT_OUT for label, fits in zip(self.labels, self.fits, strict=True)]

    def rows(self) -> list[dict[str, Any]]:
        """Return one table row per text.

        Returns:
            n rows of group (counted from 1, as in the report), group_name, answer, distance, typicality, fits and nearest_group,
            and question if a group is split by another one. The group of a text that fits none is None, its name "none of
            these"; the name of the group that it is nearest to is in nearest_group.
        """
        fits = self.fits.tolist()
        columns = {
            "group": [label + 1 if fit else None for label, fit in zip(self.labels.tolist(), fits, strict=True)],
            "group_name": self.names,
            "answer": self.answers,
            "distance": [round(float(distance), 4) for distance in self.distances],
            "typicality": [round(float(typicality), 4) for typicality in self.typicality],
            "fits": fits,
            "nearest_group": [self.group_names[label] for label in self.labels],
        } | ({} if self.questions is None else {"question": self.questions})
        return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]

    def to_frame(self) -> pd.DataFrame:
        """Return the texts and rows as a data frame.

        Returns:
            Columns text and those of ``rows``; texts from a pandas column keep its index.

        Raises:
            MissingExtraError: If pandas is not installed.
        """
        return import_extra("pandas", "tables").DataFrame(
            [{"text": text, **row} for text, row in zip(self.texts, self.rows(), strict=True)], self.index
        )
