"""Vectors to groups: k-means (mini-batches of it for many rows), Ward's tree, or HDBSCAN, on vectors of length 1.

Distances of such vectors order texts as cosines do. Only k-means takes more than 20,000 rows, as the others compare all pairs;
above 50,000 rows it goes over them in mini-batches, so that memory does not grow and the vectors may be mapped from a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import whole_number
from inbedder.errors import InputError, shown
from inbedder.grouping.number_of_groups import BLOCK_ROWS, Choice, choose_number, count_distinct_rows
from inbedder.vectors import Vectors, unit

Labels = NDArray[np.int64]
METHODS = ("k-means", "agglomerative", "hdbscan")
MAX_FULL_ROWS = 50_000
"""Beyond this many rows k-means runs in mini-batches."""
MAX_PAIRED_ROWS = 20_000
"""Maximum number of rows for methods that compare all pairs."""
INITIAL_SAMPLE_ROWS = 20_000
"""Rows that give the mini-batches their first centres."""
PASSES = 2
"""How often the mini-batches go over all rows."""
MIN_BRANCHED_GROUPS = 9
"""A tree of at least this many groups also has branches."""
MIN_DENSE_ROWS = 10
"""Minimum rows of an HDBSCAN group below a thousand rows; above, one in a hundred."""


@dataclass(frozen=True, eq=False)
class Partition:
    """Rows in groups."""

    labels: Labels
    """Group of each row, shape (n,), 0 .. k-1, the largest first; the rows that fit no group are the last one."""
    choice: Choice | None = None
    """How the number of groups was chosen; None where it was given, or HDBSCAN found it."""
    branches: list[int] | None = None
    """Branch of the tree that each group hangs on, k numbers from 0; None without a tree, or with less than nine groups."""
    left_out: int | None = None
    """Number of the group that holds the rows that fit no group; None where each fits one."""


def group(vectors: Vectors, k: int | str = "auto", seed: int = 0) -> Labels:
    """Group rows by k-means, as ``partition`` does.

    Args:
        vectors: Shape (n, d).
        k: As for ``partition``.
        seed: As for ``partition``.

    Returns:
        Group of each row, shape (n,), numbered by falling size.
    """
    return partition(vectors, k, seed).labels


def make_regrouping(method: str, count: int, min_size: int | None = None) -> Callable[[Vectors, int, int], Labels]:
    """Make the function that groups other rows in the same way, for ``measure_stability``.

    Args:
        method: As for ``partition``.
        count: How many rows were grouped; of fewer HDBSCAN's groups may be smaller by as much.
        min_size: As for ``partition``.

    Returns:
        Vectors, number of groups and seed to labels; HDBSCAN finds its number itself, and gives -1 to rows that fit none.
    """

    def regroup(vectors: Vectors, k: int, seed: int) -> Labels:
        if method != "hdbscan":
            return partition(vectors, k, seed, method=method).labels
        groups = _find_dense_regions(unit(vectors), round((min_size or _choose_min_size(count)) * len(vectors) / count))
        return groups.labels if groups.left_out is None else np.where(groups.labels == groups.left_out, -1, groups.labels)

    return regroup


def partition(
    vectors: Vectors, k: int | str = "auto", seed: int = 0, *, method: str = "k-means", min_size: int | None = None
) -> Partition:
    """Group rows.

    Args:
        vectors: Shape (n, d), which may be mapped from a file; only their directions count.
        k: Number of groups, or "auto" (see ``choose_number``). HDBSCAN finds its own.
        seed: Seed of k-means.
        method: "k-means", "agglomerative" (Ward's tree, whose upper branches gather the groups) or "hdbscan" (dense regions;
            what lies in none is left out).
        min_size: Fewest rows of a dense region of HDBSCAN; None is ten, or one in a hundred of more than a thousand.

    Returns:
        The groups.

    Raises:
        InputError: When the method is unknown or cannot take so many rows, or k is neither "auto" nor a number between 1 and
            the number of distinct rows.
    """
    check_groups(k, len(vectors), method, min_size)
    if method == "hdbscan":
        return _find_dense_regions(unit(vectors), min_size or _choose_min_size(len(vectors)))
    choice = None
    if k == "auto":
        choice = choose_number(vectors, seed)
        k = choice.k
    elif (distinct_count := count_distinct_rows(vectors, int(k))) < int(k):
        raise InputError(f"k={k}, but the texts have only {distinct_count} distinct vectors. Choose a smaller k.")
    if method == "agglomerative":
        labels, branches = _cut_ward_tree(unit(vectors), int(k))
        return Partition(labels, choice, branches)
    if len(vectors) > MAX_FULL_ROWS:
        return Partition(_run_mini_batches(vectors, int(k), seed), choice)
    return Partition(_run_k_means(unit(vectors), int(k), seed), choice)


def check_groups(k: int | str, count: int, method: str = "k-means", min_size: int | None = None) -> None:
    """Check, before the work, that these settings can group the rows.

    Args:
        k: As for ``partition``.
        count: How many rows there are.
        method: As for ``partition``.
        min_size: As for ``partition``.

    Raises:
        InputError: As ``partition`` does.
    """
    if min_size is not None and method != "hdbscan":
        raise InputError(f"{method} knows no min_size. Leave it out, or choose hdbscan.")
    if min_size is not None:
        whole_number("min_size", min_size, 2)
    if method not in METHODS:
        raise InputError(f"Unknown method {shown(method)}. Choose one of: {', '.join(METHODS)}.")
    if method != "k-means" and count > MAX_PAIRED_ROWS:
        raise InputError(f"{method} compares all pairs of rows, of which {count:,} are too many. Choose k-means.")
    if k == "auto":
        return
    if isinstance(k, str) or not 1 <= whole_number("k", k) <= count:
        raise InputError(f"k must be 'auto' or a number from 1 to {count} (the number of texts), not {k!r}.")
    if method == "hdbscan":
        raise InputError("hdbscan finds the number of groups itself. Leave k at auto, or choose k-means or agglomerative.")


def _run_k_means(directions: Vectors, k: int, seed: int) -> Labels:
    from sklearn.cluster import KMeans

    return _renumber_by_size(KMeans(n_clusters=k, n_init=10, random_state=seed).fit_predict(directions))


def _run_mini_batches(vectors: Vectors, k: int, seed: int) -> Labels:
    """Run k-means on a sample, then move its centres with mini-batches of all rows."""
    from sklearn.cluster import KMeans, MiniBatchKMeans

    generator = np.random.default_rng(seed)
    sample = np.sort(generator.choice(len(vectors), min(len(vectors), max(INITIAL_SAMPLE_ROWS, 10 * k)), replace=False))
    centres = KMeans(n_clusters=k, n_init=3, random_state=seed).fit(unit(vectors[sample])).cluster_centers_
    model = MiniBatchKMeans(n_clusters=k, init=centres, n_init=1, batch_size=BLOCK_ROWS, reassignment_ratio=0, random_state=seed)
    for _ in range(PASSES):
        order = generator.permutation(len(vectors))
        for start in range(0, len(order), BLOCK_ROWS):
            model.partial_fit(unit(vectors[np.sort(order[start : start + BLOCK_ROWS])]))
    return _renumber_by_size(np.concatenate([model.predict(unit(block)) for block in _iterate_blocks(vectors)]))


def _cut_ward_tree(directions: Vectors, k: int) -> tuple[Labels, list[int] | None]:
    """Cut Ward's tree into k groups and, above them, into about the square root of k branches."""
    from sklearn.cluster import ward_tree

    count = len(directions)
    merges = ward_tree(directions)[0] if count > 1 else np.empty((0, 2), dtype=np.intp)
    labels = _renumber_by_size(_replay_merges(merges, count, k))
    if k < MIN_BRANCHED_GROUPS:
        return labels, None
    upper = _renumber_by_size(_replay_merges(merges, count, round(k**0.5)))
    return labels, [int(upper[np.argmax(labels == number)]) for number in range(k)]


def _replay_merges(merges: NDArray[Any], count: int, k: int) -> Labels:
    """Apply the first merges of a tree, until k groups are left."""
    members: dict[int, list[int]] = {row: [row] for row in range(count)}
    for number, (left, right) in enumerate(merges[: count - k].tolist()):
        members[count + number] = members.pop(left) + members.pop(right)
    labels = np.empty(count, dtype=np.int64)
    for number, rows in enumerate(members.values()):
        labels[rows] = number
    return labels


def _choose_min_size(count: int) -> int:
    """Choose the minimum rows of a dense region."""
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
    return Partition(labels, left_out=None if is_dense.all() else int(regions.max()) + 1)


def _renumber_by_size(labels: NDArray[Any]) -> Labels:
    """Number the same groups by falling size."""
    order = np.argsort(-np.bincount(labels), kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    ranked: Labels = rank[labels]
    return ranked


def _iterate_blocks(vectors: Vectors) -> Iterator[Vectors]:
    yield from (vectors[start : start + BLOCK_ROWS] for start in range(0, len(vectors), BLOCK_ROWS))
