"""The map of a report as a table that embedding-atlas opens."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.grouping.grouped_texts import make_column_suffixes, make_group_columns
from inbedder.grouping.report.maps import HEIGHT, place_texts
from inbedder.io.columns import Record, list_columns
from inbedder.io.tables import choose_free_names
from inbedder.runtime.threads import limit_threads
from inbedder.vectors.vectors import normalize_vectors

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts

MAX_NEIGHBOURS = 15
"""Maximum number of neighbours of a text, which counts as its own first: the number that embedding-atlas computes itself."""
PLOTTED_COLUMNS = ("x", "y", "neighbors")


def make_atlas_rows(results: Sequence[GroupedTexts], records: Sequence[Record]) -> tuple[list[Record], list[str]]:
    """Make the rows that embedding-atlas opens, and the options that open each map.

    Args:
        results: Groupings of the same n texts.
        records: The user's columns, n.

    Returns:
        The user's columns, then "text" (unless a column of this name holds the texts), "x", "y", "neighbors" and the columns of
        ``make_group_columns``. The coordinates are those of the report's map, in its units and with y upwards; the neighbours are
        the rows (from 0) whose vectors have the smallest cosine distances, as ids and distances. With several groupings the
        question follows each name but "text". A name that the user's columns have gets a number. And the options of
        embedding-atlas for the map of each grouping.
    """
    texts = list(results[0].texts)
    columns: dict[str, Sequence[Any]] = {} if [record.get("text") for record in records] == texts else {"text": texts}
    suffixes = make_column_suffixes(results)
    exact = any(result.is_exact for result in results)
    layouts = place_texts([result.embeddings for result in results], exact=exact)
    for result, suffix, (positions, _) in zip(results, suffixes, layouts, strict=True):
        values = (positions[:, 0].tolist(), (HEIGHT - positions[:, 1]).round(1).tolist(), find_neighbours(result.embeddings))
        columns |= {name + suffix: column for name, column in zip(PLOTTED_COLUMNS, values, strict=True)}
    columns |= make_group_columns(results)
    names = dict(zip(columns, choose_free_names(columns, list_columns(records)), strict=True))
    rows = [
        dict(record) | dict(zip(names.values(), values, strict=True))
        for record, values in zip(records, zip(*columns.values(), strict=True), strict=True)
    ]
    commands = []
    for suffix in suffixes:
        plotted = {"text": names.get("text", "text")} | {name: names[name + suffix] for name in PLOTTED_COLUMNS}
        commands.append(shlex.join(word for option, name in plotted.items() for word in (f"--{option}", name)))
    return rows, commands


def find_neighbours(vectors: NDArray[np.float32]) -> list[dict[str, list[Any]]]:
    """Find the nearest neighbours of each text.

    Args:
        vectors: Shape (n, d), n at least 1; only their directions count.

    Returns:
        The "ids" of the rows, from 0, with the smallest cosine distances, and these "distances", the text itself first; n
        entries.

    Example:
        >>> import numpy as np
        >>> from inbedder.grouping.report.atlas import find_neighbours
        >>> find_neighbours(np.float32([[1, 0], [0, 1], [2, 0.1]]))[0]["ids"]
        [0, 2, 1]
    """
    from sklearn.neighbors import NearestNeighbors

    directions = normalize_vectors(vectors)
    own_ids = np.arange(len(directions))[:, None]
    ids: NDArray[Any] = own_ids
    distances: NDArray[Any] = np.zeros(own_ids.shape)
    other_count = min(MAX_NEIGHBOURS, len(directions)) - 1
    if other_count:
        with limit_threads(len(directions)):
            lengths, nearest = NearestNeighbors(n_neighbors=other_count, algorithm="brute").fit(directions).kneighbors()
        ids = np.hstack([ids, nearest])
        distances = np.hstack([distances, lengths**2 / 2]).round(4)  # the cosine distances of unit vectors
    return [{"ids": row.tolist(), "distances": distances[number].tolist()} for number, row in enumerate(ids)]
