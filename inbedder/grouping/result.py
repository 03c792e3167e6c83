"""The result of ``cluster``: a corpus in groups, with methods that export it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from inbedder.errors import MissingExtraError
from inbedder.grouping.grouped_texts import GroupedTexts, make_group_columns

if TYPE_CHECKING:
    import pandas as pd


class ClusterResult(GroupedTexts):
    """One grouping of a corpus, with the fields of ``GroupedTexts``.

    Example:
        >>> from inbedder import cluster
        >>> result = cluster(["I love cats", "I love dogs", "The parcel is late"], "What is it about?", k=2)
        >>> len(result.names), result.sizes
        (2, [2, 1])
    """

    def rows(self) -> list[dict[str, Any]]:
        """Return one table row per text.

        Returns:
            n rows of text, group (from 1), group_name, answer and fit (see ``group_distances.measure_fit``).
        """
        columns = {"text": self.texts, **make_group_columns([self])}
        return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a data frame.

        Returns:
            Columns text, group, group_name, answer and fit; texts from a pandas column keep its index.

        Raises:
            MissingExtraError: If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError("pandas", "mini") from error
        return pd.DataFrame(self.rows(), index=self.index)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write a self-contained HTML report.

        Args:
            path: Path of the report; an existing file is replaced.

        Raises:
            InputError: If the file cannot be written.
        """
        from inbedder.grouping.report.page import save_report

        save_report([self], path)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the groups; ``Grouping.load(folder)`` assigns new texts to them.

        Args:
            folder: A new or empty folder, or one with a saved grouping, which is replaced.

        Raises:
            InputError: If the folder cannot be used, or no text fits a group.
        """
        from inbedder.grouping.saving import Grouping

        Grouping.of(self).save(folder)
