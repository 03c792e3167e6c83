"""Clustering of texts under an instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inbedder.embedder import InBedder
from inbedder.encoding.language_scope import check_language_once
from inbedder.grouping.make_groups import make_groups
from inbedder.grouping.namers import Namer
from inbedder.grouping.result import ClusterResult
from inbedder.vectors import Vectors


def cluster(
    texts: Sequence[str],
    instruction: str | Sequence[str] | None = None,
    model: InBedder | str | None = None,
    k: int | str = "auto",
    seed: int = 0,
    *,
    method: str = "k-means",
    min_size: int | None = None,
    embeddings: Vectors | None = None,
    given_labels: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    apart_from: str | None = None,
    no_answer: bool = False,
    namer: str | Namer = "phrases",
    batch_size: int = 32,
    show_progress_bar: bool | None = None,
) -> ClusterResult:
    """Group texts by a model's answers to an instruction.

    Args:
        texts: n texts, at least one.
        instruction: The question to group by. A list holds one question in several wordings and groups the mean of their
            vectors, each of length 1. None groups general-purpose vectors and names the groups by the words of their texts.
        model: An ``InBedder``, the name of a model, or None for the bundled default.
        k: Number of groups, or "auto" for at most 50 (see ``choose_number``).
        seed: Seed of k-means.
        method: "k-means", "agglomerative" or "hdbscan" (see ``partition``).
        min_size: Minimum number of texts in an HDBSCAN group; None is 10, or 1% of more than a thousand texts.
        embeddings: Vectors of the texts under the instruction, shape (n, d), if you already have them. For vectors from
            ``encode_guided`` the model answers only the sample and the texts nearest to each centre.
        given_labels: Known labels to compare the groups with: n labels, or several such lists by name or as a table.
        apart_from: Another question, such as "Is it positive or negative?", whose groups these shall not follow: the directions
            in which its groups differ are removed from the vectors (``apart_from``).
        no_answer: Whether texts that give no answer to the question, such as "Oh.", form the last group, "fits no group"
            (``no_answer``). For questions of topic.
        namer: How groups are named: a name in ``namers.NAMERS`` (listed by ``inbedder cluster --help``), "model:NAME" for titles
            that another model writes, or a callable.
        batch_size: Batch size.
        show_progress_bar: None shows a progress bar for long work in a terminal.

    Returns:
        The grouping, with answers, keywords and examples. If the model does not answer, answers are empty and keywords come from
        the texts.

    Raises:
        InputError: If there is no text, k is out of range, labels and texts differ in number, the namer is unknown,
            embeddings come with several wordings, or no text gives an answer.

    Example:
        >>> from inbedder import cluster
        >>> texts = ["I love cats", "I love dogs", "The parcel is late", "The parcel is lost"]
        >>> result = cluster(texts, "What is it about?", k=2)
        >>> result.labels.shape, result.sizes
        ((4,), [2, 2])
    """
    options: dict[str, Any] = {"method": method, "min_size": min_size, "embeddings": embeddings, "given_labels": given_labels}
    options |= {"apart_from": apart_from, "no_answer": no_answer, "namer": namer}
    options |= {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
    with check_language_once(is_checked=None if embeddings is None else True):
        return make_groups(ClusterResult, texts, instruction, model, k, seed, **options)
