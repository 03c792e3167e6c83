"""The agreement of groupings under several wordings of one question.

All groupings have the same number of groups, so that they differ only by the wording. Their agreement is the adjusted Rand index
(Hubert and Arabie 1985): 1 for identical groupings, about 0 for unrelated ones. The wording that agrees most with the others is
the reference. The groups of every other wording are matched one to one with its groups, so that as few rows as possible move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.embedder import InBedder
from inbedder.errors import InputError
from inbedder.grouping.clustering import ClusterResult, cluster
from inbedder.grouping.partition.partition import group
from inbedder.grouping.prepare.mean_wordings import average_wordings, check_wordings
from inbedder.grouping.provenance import resolve_model
from inbedder.io.html_tables import render_html_table
from inbedder.prompting.templates import check_texts
from inbedder.vectors.vectors import Labels, normalize_vectors


@dataclass(frozen=True, eq=False, repr=False)
class WordingComparison:
    """One corpus, grouped under m wordings of a question.

    Example:
        >>> from inbedder import compare_wordings
        >>> texts = ["I love cats", "I love dogs", "The parcel is late", "The parcel is lost"]
        >>> comparison = compare_wordings(texts, ["What is it about?", "What is the topic?"], k=2)
        >>> comparison.rows()[0]["text"], comparison.labels.shape
        ('I love cats', (2, 4))
    """

    wordings: list[str]
    """m wordings."""
    agreement: NDArray[np.float64]
    """Adjusted Rand index of each pair of groupings, float64, shape (m, m)."""
    best: int
    """Position of the wording that agrees most with the others, from 0."""
    labels: NDArray[np.int64]
    """Group of each text under each wording, int64, shape (m, n), matched with the groups of the best wording."""
    result: ClusterResult
    """The grouping under the best wording."""

    def __repr__(self) -> str:
        return f"WordingComparison({self.wordings!r}, {len(self.result.texts)} texts, best={self.best})"

    def _repr_html_(self) -> str:
        order = range(1, len(self.wordings) + 1)
        agreements = [[f"{value:.2f}" for value in values] for values in self.agreement]
        rows = [[number, *cells] for number, *cells in zip(order, self.wordings, *zip(*agreements, strict=True), strict=True)]
        moved_count = int((self.moves > 0).sum())
        title = (
            f"Adjusted Rand index of each pair of wordings, 1 for the same groups; {moved_count:,} of {len(self.moves):,} texts "
            f"change groups. Closest to the others: {self.best + 1}"
        )
        return render_html_table(title, ["", "wording", *map(str, order)], rows)

    @property
    def mean_agreement(self) -> NDArray[np.float64]:
        """Mean adjusted Rand index of each wording with the others, shape (m,)."""
        means: NDArray[np.float64] = (self.agreement.sum(axis=1) - 1) / (len(self.wordings) - 1)
        return means

    @property
    def moves(self) -> NDArray[np.int64]:
        """Number of wordings under which each text leaves its group under the best wording, int64, shape (n,)."""
        counts: NDArray[np.int64] = (self.labels != self.labels[self.best]).sum(axis=0)
        return counts

    def rows(self, numbers: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """Return one table row per text.

        Args:
            numbers: Row number of each text; None counts from 1.

        Returns:
            n rows of row, text, moves and, per wording, the name of the text's group.
        """
        names, texts = self.result.names, self.result.texts
        numbers = range(1, len(texts) + 1) if numbers is None else numbers
        return [
            {"row": number, "text": text, "moves": moves}
            | {wording: names[label] for wording, label in zip(self.wordings, labels, strict=True)}
            for number, text, moves, labels in zip(numbers, texts, self.moves.tolist(), self.labels.T.tolist(), strict=True)
        ]


def compare_wordings(
    texts: Sequence[str],
    wordings: Sequence[str],
    model: InBedder | str | None = None,
    k: int | str = "auto",
    seed: int = 0,
    *,
    batch_size: int = 32,
    show_progress_bar: bool | None = None,
) -> WordingComparison:
    """Compare the groupings of texts under several wordings of one question.

    Args:
        texts: n texts, at least two.
        wordings: The question in m different wordings, at least two.
        model: An ``InBedder``, the name of a model, or None for the bundled default.
        k: Number of groups under each wording, or "auto" for the number that suits the mean over the wordings.
        seed: Seed of k-means.
        batch_size: Batch size.
        show_progress_bar: None shows a progress bar for long work in a terminal.

    Returns:
        The comparison.

    Raises:
        InputError: If there are fewer than two texts or wordings, a wording occurs twice, or k is out of range.

    Example:
        >>> from inbedder import compare_wordings
        >>> texts = ["I love cats", "I love dogs", "The parcel is late", "The parcel is lost"]
        >>> comparison = compare_wordings(texts, ["What is it about?", "What is the topic?"], k=2)
        >>> comparison.agreement.shape, comparison.moves.shape
        ((2, 2), (4,))
    """
    from sklearn.metrics import adjusted_rand_score

    wordings = check_wordings(wordings, min_count=2)
    rows = check_texts(texts, None)[0]
    if len(rows) < 2:
        raise InputError(f"{len(rows)} texts cannot be compared. Give at least two.")
    embedder = resolve_model(model)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
    vectors = embedder.encode_many(rows, wordings, precision="float32", **options)
    if k == "auto":
        k = int(group(normalize_vectors(average_wordings(vectors)[0]), k, seed).max()) + 1
    groupings = [group(normalize_vectors(wording_vectors), k, seed) for wording_vectors in vectors]
    agreement = np.array([[adjusted_rand_score(a, b) for b in groupings] for a in groupings])
    best = int(np.argmax(agreement.sum(axis=1)))
    return WordingComparison(
        wordings=wordings,
        agreement=agreement,
        best=best,
        labels=np.stack([_renumber(labels, groupings[best]) for labels in groupings]),
        result=cluster(rows, wordings[best], embedder, k, seed, embeddings=vectors[best], **options),
    )


def _renumber(labels: Labels, reference: Labels) -> Labels:
    """Renumber groups to match those of the reference one to one, so that most rows keep their number."""
    from scipy.optimize import linear_sum_assignment

    count = int(max(labels.max(), reference.max())) + 1
    common = np.zeros((count, count), dtype=np.int64)
    np.add.at(common, (labels, reference), 1)
    new_numbers: Labels = linear_sum_assignment(common, maximize=True)[1]
    return new_numbers[labels]
