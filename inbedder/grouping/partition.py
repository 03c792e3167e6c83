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
from inbedder.grouping.choosing import BLOCK, Choice, choose_number, distinct_rows
from inbedder.vectors import Vectors, unit

Labels = NDArray[np.int64]
METHODS = ("k-means", "agglomerative", "hdbscan")
MANY = 50_000
"""More rows are read in mini-batches."""
PAIRED = 20_000
"""Most rows of which all pairs are compared."""
SAMPLE = 20_000
"""Rows that the mini-batches begin with."""
PASSES = 2
"""How often the mini-batches go over all rows."""
BRANCHED = 9
"""From so many groups on, a tree also has branches."""
FEWEST = 10
"""Fewest rows of a group of HDBSCAN, where there are less than a thousand rows; else one in a hundred."""


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
    """The labels of ``partition`` by k-means.

    Args:
        vectors: Shape (n, d).
        k: As for ``partition``.
        seed: As for ``partition``.

    Returns:
        Group of each row, shape (n,), numbered by falling size.
    """
    return partition(vectors, k, seed).labels


def regrouping(method: str, count: int, min_size: int | None = None) -> Callable[[Vectors, int, int], Labels]:
    """How other rows are grouped as some were: for ``group_stability``.

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
        found = _dense_regions(unit(vectors), round((min_size or _fewest(count)) * len(vectors) / count))
        return found.labels if found.left_out is None else np.where(found.labels == found.left_out, -1, found.labels)

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
        return _dense_regions(unit(vectors), min_size or _fewest(len(vectors)))
    choice = None
    if k == "auto":
        choice = choose_number(vectors, seed)
        k = choice.k
    elif (found := distinct_rows(vectors, int(k))) < int(k):
        raise InputError(f"k={k}, but the texts have only {found} distinct vectors. Choose a smaller k.")
    if method == "agglomerative":
        labels, branches = _tree(unit(vectors), int(k))
        return Partition(labels, choice, branches)
    labels = _mini_batches(vectors, int(k), seed) if len(vectors) > MANY else _k_means(unit(vectors), int(k), seed)
    return Partition(labels, choice)


def check_groups(k: int | str, count: int, method: str = "k-means", min_size: int | None = None) -> None:
    """Find out before the work whether so many rows can be grouped so.

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
    if method != "k-means" and count > PAIRED:
        raise InputError(f"{method} compares all pairs of rows, of which {count:,} are too many. Choose k-means.")
    if k == "auto":
        return
    if isinstance(k, str) or not 1 <= whole_number("k", k) <= count:
        raise InputError(f"k must be 'auto' or a number from 1 to {count} (the number of texts), not {k!r}.")
    if method == "hdbscan":
        raise InputError("hdbscan finds the number of groups itself. Leave k at auto, or choose k-means or agglomerative.")


def _k_means(directions: Vectors, k: int, seed: int) -> Labels:
    from sklearn.cluster import KMeans

    return _by_size(KMeans(n_clusters=k, n_init=10, random_state=seed).fit_predict(directions))


def _mini_batches(vectors: Vectors, k: int, seed: int) -> Labels:
    """k-means of a sample, whose centres then follow mini-batches of all rows."""
    from sklearn.cluster import KMeans, MiniBatchKMeans

    draw = np.random.default_rng(seed)
    sample = np.sort(draw.choice(len(vectors), min(len(vectors), max(SAMPLE, 10 * k)), replace=False))
    start = KMeans(n_clusters=k, n_init=3, random_state=seed).fit(unit(vectors[sample])).cluster_centers_
    model = MiniBatchKMeans(n_clusters=k, init=start, n_init=1, batch_size=BLOCK, reassignment_ratio=0, random_state=seed)
    for _ in range(PASSES):
        order = draw.permutation(len(vectors))
        for place in range(0, len(order), BLOCK):
            model.partial_fit(unit(vectors[np.sort(order[place : place + BLOCK])]))
    return _by_size(np.concatenate([model.predict(unit(block)) for block in _blocks(vectors)]))


def _tree(directions: Vectors, k: int) -> tuple[Labels, list[int] | None]:
    """Ward's tree cut into k groups and, above them, into about the square root of k branches."""
    from sklearn.cluster import ward_tree

    count = len(directions)
    merges = ward_tree(directions)[0] if count > 1 else np.empty((0, 2), dtype=np.intp)
    labels = _by_size(_cut(merges, count, k))
    if k < BRANCHED:
        return labels, None
    upper = _by_size(_cut(merges, count, round(k**0.5)))
    return labels, [int(upper[np.argmax(labels == number)]) for number in range(k)]


def _cut(merges: NDArray[Any], count: int, k: int) -> Labels:
    """Groups after the first merges of a tree, until k are left."""
    members: dict[int, list[int]] = {row: [row] for row in range(count)}
    for number, (left, right) in enumerate(merges[: count - k].tolist()):
        members[count + number] = members.pop(left) + members.pop(right)
    labels = np.empty(count, dtype=np.int64)
    for number, rows in enumerate(members.values()):
        labels[rows] = number
    return labels


def _fewest(count: int) -> int:
    """Fewest rows of a dense region."""
    return max(FEWEST, count // 100)


def _dense_regions(directions: Vectors, fewest: int) -> Partition:
    from sklearn.cluster import HDBSCAN

    count = len(directions)
    if count < 2:
        return Partition(np.zeros(count, dtype=np.int64))
    found = HDBSCAN(min_cluster_size=min(max(fewest, 2), count), copy=True).fit_predict(directions)
    fitting = found >= 0
    labels = np.full(count, found.max() + 1, dtype=np.int64)
    labels[fitting] = _by_size(found[fitting])
    return Partition(labels, left_out=None if fitting.all() else int(found.max()) + 1)


def _by_size(labels: NDArray[Any]) -> Labels:
    """The same groups, numbered by falling size."""
    order = np.argsort(-np.bincount(labels), kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    ranked: Labels = rank[labels]
    return ranked


def _blocks(vectors: Vectors) -> Iterator[Vectors]:
    yield from (vectors[place : place + BLOCK] for place in range(0, len(vectors), BLOCK))
