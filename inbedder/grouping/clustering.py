"""Clustering of texts under an instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inbedder.embedder import InBedder
from inbedder.encoding.language_scope import check_language_once
from inbedder.grouping.cluster_options import ClusterOptions, make_cluster_signature
from inbedder.grouping.make_groups import make_groups
from inbedder.grouping.result import ClusterResult
from inbedder.vectors.vectors import Vectors

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from inbedder.grouping.cluster_options import ClusterKwargs


def cluster(
    texts: Sequence[str],
    instruction: str | Sequence[str] | None = None,
    model: InBedder | str | None = None,
    k: int | str = "auto",
    seed: int = 0,
    *,
    embeddings: Vectors | None = None,
    given_labels: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    batch_size: int = 32,
    show_progress_bar: bool | None = None,
    **options: Unpack[ClusterKwargs],
) -> ClusterResult:
    """Group texts by a model's answers to an instruction.

    Args:
        texts: n texts, at least one.
        instruction: The question to group by. A list holds one question in several wordings and groups the mean of their
            vectors, each of length 1. None groups general-purpose vectors and names the groups by the words of their texts.
        model: An ``InBedder``, the name of a model, or None for the bundled default.
        k: Number of groups, or "auto" for at most 50 (see ``choose_number``).
        seed: Seed of k-means.
        embeddings: Vectors of the texts under the instruction, shape (n, d), if you already have them. For vectors from
            ``encode_guided`` the model answers only the sample and the texts nearest to each centre.
        given_labels: Known labels to compare the groups with: n labels, or several such lists by name or as a table.
        batch_size: Batch size.
        show_progress_bar: None shows a progress bar for long work in a terminal.
        **options: Further fields of ``ClusterOptions``: method ("k-means", "agglomerative" or "hdbscan"; see ``partition``),
            min_size (of an HDBSCAN group), namer (a name in ``namers.NAMERS``, "model:NAME" for titles that another model writes,
            or a callable), apart_from (another question, such as "Is it positive or negative?": the directions in which its
            groups differ are removed from the vectors), and no_answer (whether texts that give no answer to the question, such as
            "Oh.", form the last group, "fits no group"; for questions of topic).

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
    cluster_options = ClusterOptions.parse(k=k, seed=seed, **options)
    arguments: dict[str, Any] = {"embeddings": embeddings, "given_labels": given_labels}
    arguments |= {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
    with check_language_once(is_checked=None if embeddings is None else True):
        return make_groups(ClusterResult, texts, instruction, model, cluster_options, **arguments)


cluster.__signature__ = make_cluster_signature(cluster)  # type: ignore[attr-defined]
