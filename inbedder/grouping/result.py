"""The result of ``cluster``: a corpus in groups, with methods that export it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.arguments import check_integer
from inbedder.errors import InputError, import_extra
from inbedder.grouping.grouped_texts import GroupedTexts, make_group_columns
from inbedder.grouping.stored.edits import merge_groups, move_texts, rename_groups, split_group
from inbedder.io.html_tables import render_html_table

if TYPE_CHECKING:
    import pandas as pd

    from inbedder.embedder import InBedder


class ClusterResult(GroupedTexts):
    """One grouping of a corpus, with the fields of ``GroupedTexts``.

    Example:
        >>> from inbedder import cluster
        >>> result = cluster(["I love cats", "I love dogs", "The parcel is late"], "What is it about?", k=2)
        >>> len(result.names), result.sizes
        (2, [2, 1])
    """

    def _repr_html_(self) -> str:
        groups = zip(self.names, self.sizes, self.keywords, self.examples, strict=True)
        rows = [[i, name, size, ", ".join(words[:5]), texts[:2]] for i, (name, size, words, texts) in enumerate(groups, 1)]
        title = f"{self.instruction} – {len(self.texts):,} texts"
        return render_html_table(title, ["group", "name", "texts", "keywords", "examples"], rows)

    def rows(self, top: int = 1) -> list[dict[str, Any]]:
        """Return one table row per text.

        Args:
            top: Number of groups per text.

        Returns:
            n rows of text, group (from 1), group_name, answer and fit (see ``group_distances.measure_fit``), and with ``top``
            above 1 the shares of the best groups (see ``make_group_columns``).
        """
        columns = {"text": self.texts, **make_group_columns([self], top)}
        return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]

    def to_frame(self, top: int = 1) -> pd.DataFrame:
        """Return the rows as a data frame.

        Args:
            top: Number of groups per text.

        Returns:
            Columns text, group, group_name, answer and fit, and shares (see ``rows``); texts from a pandas column keep its index.

        Raises:
            MissingExtraError: If pandas is not installed.
        """
        return import_extra("pandas", "tables").DataFrame(self.rows(top), index=self.index)

    def merge(self, numbers: Sequence[int], name: str | None = None) -> ClusterResult:
        """Merge groups.

        Args:
            numbers: Numbers of two or more groups, from 0.
            name: Name of the merged group; None for that of the largest one.

        Returns:
            The grouping with the groups renumbered by falling size. Agreement with labels and the stability of the merged group
            are not known.

        Raises:
            InputError: If there are fewer than two groups, or no such group.

        Example:
            >>> from inbedder import cluster
            >>> result = cluster(["I love cats", "I love dogs", "The parcel is late"], "What is it about?", k=3)
            >>> result.merge([0, 1], "pets").names[0]
            'pets'
        """
        return merge_groups(self, numbers, name)

    def move(self, rows: Sequence[int], to: int) -> ClusterResult:
        """Move texts to another group.

        Args:
            rows: Positions of the texts, from 0.
            to: Number of the group, from 0.

        Returns:
            The grouping with the groups renumbered by falling size. A saved one assigns texts like the moved ones to their group.

        Raises:
            InputError: If there is no such text or group, or no text to move.
        """
        return move_texts(self, rows, to)

    def rename(self, names: Mapping[int, str]) -> ClusterResult:
        """Rename groups.

        Args:
            names: New names by number of the group, from 0.

        Returns:
            The grouping with these names.

        Raises:
            InputError: If there is no such group, or a name is empty or belongs to another group.
        """
        return rename_groups(self, names)

    def split(
        self, number: int, question: str, k: int | str = "auto", *, model: InBedder | str | None = None, **options: Any
    ) -> ClusterResult:
        """Split a group by another question.

        Args:
            number: Number of the group, from 0.
            question: The question, such as "Which part of it broke?".
            k: Number of new groups, or "auto".
            model: The model that made the grouping, if it is loaded; None loads it.
            **options: Further keyword arguments of ``cluster``, such as seed and namer.

        Returns:
            The grouping with the new groups, renumbered by falling size.

        Raises:
            InputError: If there is no such group, it has fewer than two texts, or the model is another one.
        """
        from inbedder.embedder import InBedder
        from inbedder.grouping.cluster_options import ClusterOptions
        from inbedder.grouping.make_groups import make_groups

        members = [
            self.texts[row] for row in np.flatnonzero(self.labels == check_integer("group", number, 0, len(self.names) - 1))
        ]
        if len(members) < 2:
            raise InputError("The group has only one text. Choose a larger one.")
        assert self.provenance is not None
        if isinstance(model, InBedder):
            self.provenance.check(model)
        embedder = model if isinstance(model, InBedder) else self.provenance.load_model(model)
        arguments = {name: options.pop(name) for name in ("batch_size", "show_progress_bar") if name in options}
        cluster_options = ClusterOptions.parse(k=k, **options)
        return split_group(self, number, make_groups(type(self), members, question, embedder, cluster_options, **arguments))

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
        from inbedder.grouping.stored.saving import Grouping

        Grouping.of(self).save(folder)
