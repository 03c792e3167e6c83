"""What ``cluster`` returns: a corpus in groups, and the ways to write it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from inbedder.errors import MissingExtraError
from inbedder.grouping.grouped_texts import GroupedTexts, group_columns

if TYPE_CHECKING:
    import pandas as pd


class ClusterResult(GroupedTexts):
    """One grouping of a corpus: its fields are those of ``GroupedTexts``."""

    def rows(self) -> list[dict[str, Any]]:
        """One table row per text.

        Returns:
            Rows of text, group (from 1), group_name, answer and fit (see ``fitting.measure_fit``).
        """
        columns = {"text": self.texts, **group_columns([self])}
        return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]

    def to_frame(self) -> pd.DataFrame:
        """The rows as a data frame.

        Returns:
            Columns text, group, group_name, answer, fit; its index is that of the texts where they were a column of pandas.

        Raises:
            MissingExtraError: When pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError("pandas", "mini") from error
        return pd.DataFrame(self.rows(), index=self.index)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page: map, keywords and examples.

        Args:
            path: The page's file.
        """
        from inbedder.grouping.report.page import save_report

        save_report([self], path)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Keep the groups, so that ``Grouping.load(folder)`` can put new texts into them.

        Args:
            folder: New, empty, or one that holds a grouping, which is replaced.

        Raises:
            InputError: When the folder cannot be used, or every text was left out.
        """
        from inbedder.grouping.saving import Grouping

        Grouping.of(self).save(folder)
