"""The number of groups: the geometric mean of the numbers that the silhouette and the Davies-Bouldin index prefer.

Both criteria compare distances within groups with distances between groups, the silhouette per row (Rousseeuw 1987), the index
per centre (Davies and Bouldin 1979). Either criterion often prefers the smallest or the largest candidate. On the project's
labelled sets the geometric mean came nearer to the number of labels than distinct answers and agreement of subsamples, and no
rule for fewer groups was better (``scripts.bench.grouping``, numbers in ``evaluation/README.md``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inbedder.runtime.cancellation import check_cancelled
from inbedder.vectors.vectors import Vectors, normalize_vectors

CANDIDATE_NUMBERS = (*range(2, 13), 14, 16, 18, 20, 23, 26, 30, 35, 40, 45, 50)
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
    """The number with the best silhouette."""
    by_davies_bouldin: int
    """The number with the best Davies-Bouldin index."""
    silhouette: float
    """The best silhouette, -1 to 1."""
    max_k: int
    """The largest number tried."""

    @property
    def confidence(self) -> str:
        """Confidence in the number: "high" if groups are well separated and it is not the largest number tried, else "low"."""
        return "high" if self.silhouette >= CLEAR_SILHOUETTE and self.k < self.max_k else "low"

    def __str__(self) -> str:
        """Describe the choice in one sentence."""
        if self.max_k < 3:
            two_groups = "2 groups: the texts are too few or too similar for more."
            return two_groups if self.k == 2 else "All texts are alike and form one group."
        low, high = sorted((self.by_silhouette, self.by_davies_bouldin))
        criteria = f"both criteria prefer {low}" if low == high else f"one criterion prefers {low}, the other {high}"
        caveat = ""
        if self.confidence == "low":
            caveat = " because more may be better" if self.silhouette >= CLEAR_SILHOUETTE else " because groups overlap"
        confidence = f"confidence {self.confidence}{caveat} (silhouette {self.silhouette:.2f})"
        return f"{self.k} groups, chosen from 2 to {self.max_k}: {criteria}; {confidence}."


def choose_number(vectors: Vectors, seed: int = 0) -> Choice:
    """Choose the number of groups for k-means.

    Args:
        vectors: Shape (n, d); may be memory-mapped. Only their directions count.
        seed: Seed of the sample and of k-means.

    Returns:
        The choice: 2 to 50 groups, and at most n / 10 above 2; one group if all rows have the same direction.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import davies_bouldin_score, pairwise_distances, silhouette_score

    rows = np.arange(len(vectors))
    if len(rows) > MAX_SAMPLED_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(len(rows), MAX_SAMPLED_ROWS, replace=False))
    sample = normalize_vectors(vectors[rows])
    distinct_count = count_distinct_rows(sample, len(sample))
    if distinct_count < 3:
        k = min(count_distinct_rows(vectors, 3), 2)
        return Choice(k, k, k, 0.0, k)
    numbers = [k for k in CANDIDATE_NUMBERS if k < distinct_count and k <= max(2, len(vectors) // MIN_MEAN_GROUP_ROWS)]
    distances = pairwise_distances(sample)
    silhouettes, indexes = [], []
    for k in numbers:
        check_cancelled()
        labels = KMeans(n_clusters=k, n_init=3, random_state=seed).fit_predict(sample)
        silhouettes.append(float(silhouette_score(distances, labels, metric="precomputed")))
        indexes.append(-float(davies_bouldin_score(sample, labels)))
    by_silhouette, by_index = (numbers[int(np.argmax(scores))] for scores in (silhouettes, indexes))
    k = round((by_silhouette * by_index) ** 0.5)
    return Choice(k, by_silhouette, by_index, max(silhouettes), numbers[-1])


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
