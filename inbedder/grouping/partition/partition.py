"""Partition of vectors into groups by k-means, Ward's tree or HDBSCAN.

Vectors are scaled to length 1, so that distances order texts as cosines do. Ward's tree and HDBSCAN compare all pairs and take at
most 20,000 rows. Above 50,000 rows k-means runs in mini-batches, so that memory does not grow and vectors may be memory-mapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError
from inbedder.grouping.cluster_options import ClusterOptions
from inbedder.grouping.partition.number_of_groups import BLOCK_ROWS, Choice, choose_number, count_distinct_rows
from inbedder.runtime.cancellation import check_cancelled
from inbedder.vectors.vectors import Labels, Vectors, normalize_vectors

MIN_AUTOMATIC_ROWS = 3
"""Minimum number of rows of a group if the number of groups is chosen. On samples of the labelled sets of
``scripts.bench.grouping`` three costs no agreement with the labels, five up to one point of V-measure."""
MAX_FULL_ROWS = 50_000
"""Maximum number of rows for full k-means; more run in mini-batches."""
INITIAL_SAMPLE_ROWS = 20_000
"""Number of rows that initialize the centres of mini-batch k-means."""
EPOCHS = 2
"""Passes of mini-batch k-means over all rows."""
MAX_ALIKE_DISTANCE = 0.01
"""Maximum distance from their mean at which rows that HDBSCAN cannot separate form one group; a cosine of 0.99995."""
MIN_DENSE_ROWS = 10
"""Minimum number of rows in an HDBSCAN group; 1% of more than a thousand rows."""


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition of n rows into k groups."""

    labels: Labels
    """Group of each row, shape (n,), 0 .. k-1, the largest group first; rows that fit no group form the last one."""
    choice: Choice | None = None
    """How the number of groups was chosen; None if it was given, or HDBSCAN found it."""
    left_out: int | None = None
    """Number of the group of rows that fit none; None if every row fits a group."""

    def add_left_out(self, rows: NDArray[np.intp], count: int) -> Partition:
        """Add rows that were not partitioned to the group of rows that fit none.

        Args:
            rows: Positions of the partitioned rows among all rows.
            count: Number of all rows.

        Returns:
            The partition of all rows.
        """
        if len(rows) == count:
            return self
        left_out = int(self.labels.max()) + 1 if self.left_out is None else self.left_out
        labels = np.full(count, left_out, dtype=np.int64)
        labels[rows] = self.labels
        return replace(self, labels=labels, left_out=left_out)


def mark_left_out(labels: Labels, left_out: int | None) -> Labels:
    """Mark the rows of the group ``left_out``, which fit no group, by -1."""
    return labels if left_out is None else np.where(labels == left_out, -1, labels)


def group(vectors: Vectors, k: int | str = "auto", seed: int = 0) -> Labels:
    """Group rows by k-means.

    Args:
        vectors: Shape (n, d).
        k: Number of groups, or "auto" (see ``choose_number``).
        seed: Seed of k-means.

    Returns:
        Group of each row, int64, shape (n,), the largest group first.
    """
    return partition(vectors, k, seed).labels


def make_regrouping(method: str, count: int, min_size: int | None = None) -> Callable[[Vectors, int, int], Labels]:
    """Make the function that groups resampled rows for ``measure_stability``.

    Args:
        method: Method of the grouping: "k-means", "agglomerative" or "hdbscan".
        count: Number of rows of the grouping; HDBSCAN's minimum size shrinks in proportion for fewer rows.
        min_size: Minimum number of rows in an HDBSCAN group of the grouping; None for the default.

    Returns:
        A function of vectors, number of groups and seed that returns labels. HDBSCAN ignores the number and labels rows that fit
        no group -1.
    """

    def regroup(vectors: Vectors, k: int, seed: int) -> Labels:
        if method != "hdbscan":
            return partition(vectors, k, seed, method=method).labels
        groups = _find_dense_regions(
            normalize_vectors(vectors), round((min_size or _choose_min_size(count)) * len(vectors) / count)
        )
        return mark_left_out(groups.labels, groups.left_out)

    return regroup


def partition(
    vectors: Vectors, k: int | str = "auto", seed: int = 0, *, method: str = "k-means", min_size: int | None = None
) -> Partition:
    """Partition rows into groups.

    Args:
        vectors: Shape (n, d); may be memory-mapped. Only their directions count.
        k: Number of groups, or "auto" (see ``choose_number``), which takes fewer if the smallest would have one row or two.
            HDBSCAN finds its own.
        seed: Seed of k-means.
        method: "k-means", "agglomerative" (Ward's tree) or "hdbscan" (dense regions;
            rows outside them fit no group).
        min_size: Minimum number of rows in an HDBSCAN group; None is 10, or 1% of more than a thousand rows.

    Returns:
        The partition.

    Raises:
        InputError: If the method is unknown or cannot take as many rows, or k is neither "auto" nor a number from 1 to the
            number of distinct rows.
    """
    ClusterOptions(k=k, seed=seed, method=method, min_size=min_size).check_count(len(vectors))
    if method == "hdbscan":
        return _find_dense_regions(normalize_vectors(vectors), min_size or _choose_min_size(len(vectors)))
    if k == "auto":
        choice = choose_number(vectors, seed)
        labels = _partition_into(vectors, choice.k, seed, method)
        while choice.k > 2 and np.bincount(labels).min() < MIN_AUTOMATIC_ROWS:
            choice = replace(choice, k=choice.k - 1)
            labels = _partition_into(vectors, choice.k, seed, method)
        return Partition(labels, choice)
    if (distinct_count := count_distinct_rows(vectors, int(k))) < int(k):
        raise InputError(f"k={k}, but the texts have only {distinct_count} distinct vectors. Choose a smaller k.")
    return Partition(_partition_into(vectors, int(k), seed, method))


def _partition_into(vectors: Vectors, k: int, seed: int, method: str) -> Labels:
    if method == "agglomerative":
        return _cut_ward_tree(normalize_vectors(vectors), k)
    if len(vectors) > MAX_FULL_ROWS:
        return _run_mini_batches(vectors, k, seed)
    return _run_k_means(normalize_vectors(vectors), k, seed)


def _run_k_means(directions: Vectors, k: int, seed: int) -> Labels:
    from sklearn.cluster import KMeans

    check_cancelled()
    return _renumber_by_size(KMeans(n_clusters=k, n_init=10, random_state=seed).fit_predict(directions))


def _run_mini_batches(vectors: Vectors, k: int, seed: int) -> Labels:
    """Run k-means on a sample, then update its centres with mini-batches of all rows."""
    from sklearn.cluster import KMeans, MiniBatchKMeans

    generator = np.random.default_rng(seed)
    sample = np.sort(generator.choice(len(vectors), min(len(vectors), max(INITIAL_SAMPLE_ROWS, 10 * k)), replace=False))
    centres = KMeans(n_clusters=k, n_init=3, random_state=seed).fit(normalize_vectors(vectors[sample])).cluster_centers_
    model = MiniBatchKMeans(n_clusters=k, init=centres, n_init=1, batch_size=BLOCK_ROWS, reassignment_ratio=0, random_state=seed)
    for _ in range(EPOCHS):
        order = generator.permutation(len(vectors))
        for start in range(0, len(order), BLOCK_ROWS):
            check_cancelled()
            model.partial_fit(normalize_vectors(vectors[np.sort(order[start : start + BLOCK_ROWS])]))
    return _renumber_by_size(np.concatenate([model.predict(normalize_vectors(block)) for block in _iterate_blocks(vectors)]))


def _cut_ward_tree(directions: Vectors, k: int) -> Labels:
    from sklearn.cluster import AgglomerativeClustering

    if k == 1:
        return np.zeros(len(directions), dtype=np.int64)
    return _renumber_by_size(AgglomerativeClustering(k).fit_predict(directions))


def _choose_min_size(count: int) -> int:
    """Choose the minimum number of rows in an HDBSCAN group."""
    return max(MIN_DENSE_ROWS, count // 100)


def _find_dense_regions(directions: Vectors, min_size: int) -> Partition:
    from sklearn.cluster import HDBSCAN

    count = len(directions)
    if count < 2:
        return Partition(np.zeros(count, dtype=np.int64))
    regions = HDBSCAN(min_cluster_size=min(max(min_size, 2), count), copy=True).fit_predict(directions)
    is_dense = regions >= 0
    labels = np.full(count, regions.max() + 1, dtype=np.int64)
    labels[is_dense] = _renumber_by_size(regions[is_dense])
    if not is_dense.any() and np.linalg.norm(directions - directions.mean(axis=0), axis=1).max() <= MAX_ALIKE_DISTANCE:
        return Partition(np.zeros(count, dtype=np.int64))  # HDBSCAN needs two regions to find one
    return Partition(labels, left_out=None if is_dense.all() else int(regions.max()) + 1)


def _renumber_by_size(labels: NDArray[Any]) -> Labels:
    """Renumber groups by falling size."""
    order = np.argsort(-np.bincount(labels), kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    ranked: Labels = rank[labels]
    return ranked


def _iterate_blocks(vectors: Vectors) -> Iterator[Vectors]:
    yield from (vectors[start : start + BLOCK_ROWS] for start in range(0, len(vectors), BLOCK_ROWS))
