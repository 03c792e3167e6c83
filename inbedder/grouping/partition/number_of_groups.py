"""The number of groups: the geometric mean of the numbers that the silhouette and the Davies-Bouldin index prefer.

Both criteria compare distances within groups with distances between groups, the silhouette per row (Rousseeuw 1987), the index
per centre (Davies and Bouldin 1979). They are measured on random halves of the rows. Of the numbers whose mean is within one
standard error of the best, each criterion prefers the largest: a group too many is easy to merge, a group too few hides what
it holds. ``scripts.bench.grouping`` compares other rules; the numbers are in ``evaluation/README.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.runtime.cancellation import check_cancelled
from inbedder.vectors.vectors import Vectors, normalize_vectors

CANDIDATE_NUMBERS = (*range(2, 13), 14, 16, 18, 20, 23, 26, 30, 35, 40, 45, 50)
MIN_OVERLAPPING_GROUPS, MAX_OVERLAPPING_GROUPS = 5, 20
"""Numbers of groups that overlap, if there are rows enough: fewer hide more than they show, more are not read."""
PAIRS_OF_HALVES = 3
MIN_MEAN_GROUP_ROWS = 10
"""Minimum mean number of rows per group, unless there are only two groups."""
MAX_SAMPLED_ROWS = 1000
"""Maximum number of rows that the candidates are tried on."""
CLEAR_SILHOUETTE = 0.25
"""Minimum silhouette of well-separated groups (Kaufman and Rousseeuw 1990)."""
BLOCK_ROWS = 8192
"""Number of rows read at once."""


@dataclass(frozen=True)
class Choice:
    """A chosen number of groups and its criteria."""

    k: int
    """The chosen number."""
    by_silhouette: int
    """The number that the silhouette prefers."""
    by_davies_bouldin: int
    """The number that the Davies-Bouldin index prefers."""
    silhouette: float
    """The best mean silhouette of the halves, -1 to 1."""
    max_k: int
    """The largest number tried."""

    @property
    def confidence(self) -> str:
        """Confidence in the number: "high" if groups are well separated and it is not the largest number tried, else "low"."""
        return "high" if self.silhouette >= CLEAR_SILHOUETTE and self.k < self.max_k else "low"

    def __str__(self) -> str:
        """Describe the choice for the reader of a report."""
        if self.max_k < 3:
            two_groups = "2 groups: the texts are too few or too similar for more."
            return two_groups if self.k == 2 else "All texts are alike and form one group."
        low, high = sorted((self.by_silhouette, self.by_davies_bouldin))
        criteria = f"both measures prefer {low}" if low == high else f"one measure prefers {low}, the other {high}"
        if self.k > high:
            criteria += ", too few for groups that overlap"
        elif self.k < low:
            criteria += ", which would leave groups of one text or two"
        advice = ""
        if self.silhouette < CLEAR_SILHOUETTE:
            advice = " The groups overlap: read them as an index of the texts, whose borders could lie elsewhere."
        elif self.k == self.max_k:
            advice = " The groups are distinct, and more may be better."
        return f"{self.k} groups, chosen from 2 to {self.max_k}: {criteria}.{advice}"


def choose_number(vectors: Vectors, seed: int = 0) -> Choice:
    """Choose the number of groups for k-means.

    Args:
        vectors: Shape (n, d); may be memory-mapped. Only their directions count.
        seed: Seed of the sample and of k-means.

    Returns:
        The choice: 2 to 50 groups, 5 to 20 if they overlap, and at most n / 10 above 2; one group if all rows have the same
        direction.
    """
    rows = np.arange(len(vectors))
    if len(rows) > MAX_SAMPLED_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(len(rows), MAX_SAMPLED_ROWS, replace=False))
    sample = normalize_vectors(vectors[rows])
    distinct_count = count_distinct_rows(sample, len(sample))
    if distinct_count < 3:
        k = min(count_distinct_rows(vectors, 3), 2)
        return Choice(k, k, k, 0.0, k)
    halves = _draw_halves(sample, seed)
    max_k = max(2, min(distinct_count - 1, *(count_distinct_rows(half, len(half)) - 1 for half in halves)))
    numbers = [k for k in CANDIDATE_NUMBERS if k <= min(max_k, max(2, len(vectors) // MIN_MEAN_GROUP_ROWS))]
    if len(numbers) == 1:
        return Choice(2, 2, 2, 0.0, 2)
    scores = _measure_criteria(halves, [k for k in numbers if k <= MAX_OVERLAPPING_GROUPS], seed)
    silhouette = float(scores[0].mean(axis=1).max())
    overlaps = silhouette < CLEAR_SILHOUETTE
    if overlaps:
        numbers = numbers[: scores.shape[1]]
    elif further_numbers := numbers[scores.shape[1] :]:
        scores = np.concatenate([scores, _measure_criteria(halves, further_numbers, seed)], axis=1)
        silhouette = float(scores[0].mean(axis=1).max())
    by_silhouette, by_index = (_find_largest_good(numbers, values) for values in scores)
    k = round((by_silhouette * by_index) ** 0.5)
    if overlaps:
        k = max(k, min(MIN_OVERLAPPING_GROUPS, numbers[-1]))
    return Choice(k, by_silhouette, by_index, silhouette, numbers[-1])


def _draw_halves(rows: Vectors, seed: int) -> list[Vectors]:
    """Split the rows into random halves, several times."""
    random = np.random.default_rng(seed)
    pairs = [np.array_split(random.permutation(len(rows)), 2) for _ in range(PAIRS_OF_HALVES)]
    return [rows[np.sort(half)] for pair in pairs for half in pair]


def _measure_criteria(halves: list[Vectors], numbers: list[int], seed: int) -> NDArray[np.float64]:
    """Measure the silhouette and the negative Davies-Bouldin index, shape (2, numbers, halves)."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import davies_bouldin_score, pairwise_distances, silhouette_score

    scores = np.empty((2, len(numbers), len(halves)))
    for column, half in enumerate(halves):
        distances = pairwise_distances(half)
        for row, k in enumerate(numbers):
            check_cancelled()
            labels = KMeans(n_clusters=k, n_init=1, random_state=seed + column).fit_predict(half)
            scores[0, row, column] = silhouette_score(distances, labels, metric="precomputed")
            scores[1, row, column] = -davies_bouldin_score(half, labels)
    return scores


def _find_largest_good(numbers: list[int], scores: NDArray[Any]) -> int:
    """Find the largest number whose mean score is within one standard error of the best; scores of shape (numbers, draws)."""
    means = scores.mean(axis=1).round(6)  # equal means differ by rounding
    best = int(means.argmax())
    error = scores[best].std(ddof=1) / scores.shape[1] ** 0.5
    return max(k for k, mean in zip(numbers, means, strict=True) if mean >= means[best] - error)


def count_distinct_rows(vectors: Vectors, limit: int) -> int:
    """Count distinct directions up to a limit.

    Args:
        vectors: Shape (n, d).
        limit: Number at which counting stops.

    Returns:
        The number of distinct directions, at most ``limit``.
    """
    directions: set[bytes] = set()
    for start in range(0, len(vectors), BLOCK_ROWS):
        for row in normalize_vectors(vectors[start : start + BLOCK_ROWS]) + 0.0:  # -0.0 becomes 0.0
            directions.add(row.tobytes())
            if len(directions) == limit:
                return limit
    return len(directions)
