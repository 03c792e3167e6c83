"""How many groups: between the number that the silhouette likes best and the one that the Davies-Bouldin index likes best.

Both compare how close rows are within groups and between them, the silhouette row by row (Rousseeuw 1987), the index centre by
centre (Davies and Bouldin 1979). Either alone often runs to the smallest or the largest number that was tried; their geometric
mean came nearest to the number of labels on the project's labelled sets: nearer than distinct answers and agreement of subsamples
(``scripts/measure_counts.py``, the table in ``evaluation/README.md``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inbedder.vectors import Vectors, unit

NUMBERS = (*range(2, 13), 14, 16, 18, 20, 23, 26, 30, 35, 40, 45, 50)
"""What is tried."""
PER_GROUP = 10
"""Rows per group, on average at least, or two groups."""
SAMPLE = 1000
"""Most rows that the numbers are tried on."""
CLEAR = 0.25
"""A silhouette of at least this shows groups that stand apart (Kaufman and Rousseeuw 1990)."""
BLOCK = 8192


@dataclass(frozen=True)
class Choice:
    """A number of groups, and what speaks for it."""

    k: int
    """The number."""
    by_silhouette: int
    """The number with the best silhouette."""
    by_davies_bouldin: int
    """The number with the best Davies-Bouldin index."""
    silhouette: float
    """The best silhouette, -1 to 1."""
    most: int
    """The largest number that was tried."""

    @property
    def confidence(self) -> str:
        """Either "high", where groups stand apart and the number is not the largest that was tried, or "low"."""
        return "high" if self.silhouette >= CLEAR and self.k < self.most else "low"

    def __str__(self) -> str:
        """One sentence for people."""
        if self.most < 3:
            few = "2 groups: the texts are too few or too alike for more."
            return few if self.k == 2 else "All texts are alike, so they are one group."
        low, high = sorted((self.by_silhouette, self.by_davies_bouldin))
        liked = f"both criteria like {low} best" if low == high else f"one criterion likes {low} best, the other {high}"
        why = ""
        if self.confidence == "low":
            why = ", as more may be better" if self.silhouette >= CLEAR else ", as groups hardly stand apart"
        sure = f"confidence {self.confidence}{why} (silhouette {self.silhouette:.2f})"
        return f"{self.k} groups were chosen from 2 to {self.most}: {liked}; {sure}."


def choose_number(vectors: Vectors, seed: int = 0) -> Choice:
    """Choose the number of groups of k-means.

    Args:
        vectors: Shape (n, d), which may be mapped from a file; only their directions count.
        seed: Seed of the sample and of k-means.

    Returns:
        The number, 2 to 50 and at most a tenth of n; less than 2 where there are less distinct rows.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import davies_bouldin_score, pairwise_distances, silhouette_score

    rows = np.arange(len(vectors))
    if len(rows) > SAMPLE:
        rows = np.sort(np.random.default_rng(seed).choice(len(rows), SAMPLE, replace=False))
    sample = unit(vectors[rows])
    distinct = distinct_rows(sample, len(sample))
    if distinct < 3:
        found = distinct_rows(vectors, 3)
        k = min(found, 2)
        return Choice(k, k, k, 0.0, k)
    numbers = [k for k in NUMBERS if k < distinct and k <= max(2, len(vectors) // PER_GROUP)]
    apart = pairwise_distances(sample)
    silhouettes, indexes = [], []
    for k in numbers:
        labels = KMeans(n_clusters=k, n_init=3, random_state=seed).fit_predict(sample)
        silhouettes.append(float(silhouette_score(apart, labels, metric="precomputed")))
        indexes.append(-float(davies_bouldin_score(sample, labels)))
    by_silhouette, by_index = (numbers[int(np.argmax(scores))] for scores in (silhouettes, indexes))
    k = round((by_silhouette * by_index) ** 0.5)
    return Choice(k, by_silhouette, by_index, max(silhouettes), numbers[-1])


def distinct_rows(vectors: Vectors, enough: int) -> int:
    """How many directions there are; counting stops where there are enough.

    Args:
        vectors: Shape (n, d).
        enough: A number.

    Returns:
        Their number, at most ``enough``.
    """
    seen: set[bytes] = set()
    for place in range(0, len(vectors), BLOCK):
        for row in unit(vectors[place : place + BLOCK]) + 0.0:  # -0.0 becomes 0.0
            seen.add(row.tobytes())
            if len(seen) == enough:
                return enough
    return len(seen)
