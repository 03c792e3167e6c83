"""Groups of texts under an instruction, named by the answers, or by the texts where the model answers nothing.

k-means (scikit-learn) on vectors of length 1, so that distances order texts as cosines do; with ``k="auto"`` the number of
groups with the best silhouette, or rather the most groups among those that are as good to two hundredths, since a finer
grouping tells more.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import entries, known_vectors, seed_number, whole_number
from inbedder.embedder import InBedder
from inbedder.errors import InputError, MissingExtraError, TextCutWarning
from inbedder.grouping.alike import tell_apart
from inbedder.grouping.explain import LabelAgreement, agreement, central_texts, keywords, mean_differences
from inbedder.grouping.rows import group_columns
from inbedder.grouping.titles import group_titles
from inbedder.legibility import warn_of_unreadable
from inbedder.prompting import check_texts
from inbedder.vectors import Vectors, unit

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

AUTO_RANGE = range(2, 13)
TEXTS_PER_GROUP = 10  # with k="auto", as many texts per group on average, or two groups
TEXTS_READ = 20  # of each group of mapped vectors so many central texts are answered
SILHOUETTE_SAMPLE = 2000
ALIKE = 0.02  # silhouettes (-1 to 1) that differ by less tell nothing apart
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class ClusterResult:
    """One grouping of a corpus. Two are equal when all that they hold is."""

    instruction: str
    """What was asked."""
    texts: list[str]
    """The corpus, n texts."""
    labels: Labels
    """Cluster of each text, shape (n,), 0 .. k-1, the largest cluster first."""
    keywords: list[list[str]]
    """Words that name each cluster, k lists."""
    examples: list[list[str]]
    """The most central texts of each cluster, k lists."""
    answers: list[str]
    """What the model answered for each text; empty strings of a model that does not answer."""
    embeddings: Vectors
    """float32, shape (n, d), as the model gave them."""
    head_words: list[list[str]]
    """The answer head's words for cluster mean minus corpus mean, k lists (empty where the head cannot read the layer)."""
    label_agreements: dict[str, LabelAgreement] = field(default_factory=dict)
    """How the clusters relate to given labels, by the labels' name."""
    titles: list[str] | None = None
    """Titles that the model wrote from each cluster's answers, k strings; None when none were asked for."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know of the groups, in sentences: which were merged or have the same answers."""
    index: Any = None
    """Index of the texts where they came as a column of pandas; None for others."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClusterResult):
            return NotImplemented
        pairs = [(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)]
        return all(np.array_equal(a, b) if hasattr(a, "__array__") else a == b for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        groups = ", ".join(f"{name!r}: {size}" for name, size in zip(self.names, self.sizes, strict=True))
        return f"ClusterResult({self.instruction!r}, {len(self.texts)} texts, {{{groups}}})"

    @property
    def sizes(self) -> list[int]:
        """Texts in each cluster."""
        return [int(size) for size in np.bincount(self.labels)]

    @property
    def names(self) -> list[str]:
        """A short name of each cluster: its title where there is one, else its first keywords."""
        pairs = zip(self.titles or [""] * len(self.keywords), self.keywords, strict=True)
        return [title or ", ".join(words[:3]) or f"group {i + 1}" for i, (title, words) in enumerate(pairs)]

    def rows(self) -> list[dict[str, Any]]:
        """One table row per text.

        Returns:
            Rows of text, group (from 1), group_name, answer and fit (see ``inbedder.grouping.rows.fits``).
        """
        columns = {"text": self.texts, **group_columns([self])}
        return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]

    def to_frame(self) -> pd.DataFrame:
        """The rows as a data frame.

        Returns:
            Columns text, group, group_name, answer, fit; its index is that of the texts where they were a column of pandas.

        Raises:
            MissingExtraError: When pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError("pandas", "report") from error
        return pd.DataFrame(self.rows(), index=self.index)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page: map, keywords and examples.

        Args:
            path: The page's file.
        """
        from inbedder.grouping.report.page import save_report

        save_report([self], path)


def cluster(
    texts: Sequence[str],
    instruction: str | None = None,
    model: InBedder | str | None = None,
    k: int | str = "auto",
    seed: int = 0,
    *,
    embeddings: Vectors | None = None,
    given_labels: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    titles: bool = False,
    batch_size: int = 32,
    show_progress_bar: bool | None = None,
) -> ClusterResult:
    """Group texts by their answers to an instruction; by their vectors alone where the model does not answer.

    Args:
        texts: n texts, at least one.
        instruction: The aspect to group by, as a question; None is ``@generic``, as for ``InBedder.encode``.
        model: An ``InBedder``, the name of one, or None for the bundled default.
        k: Number of groups, or "auto".
        seed: Seed of k-means.
        embeddings: The texts' vectors under the instruction, shape (n, d), where they are known already. Of those of
            ``encode_guided`` the sample and the texts nearest to each centre are answered, the other answers are empty.
        given_labels: Known labels, one per text, to compare the groups with; or several such lists by their names.
        titles: Let the model write a short title for each group from the group's answers (see ``titles``); for models that
            answer in words of their own, such as ``small``.
        batch_size: Most texts in one pass.
        show_progress_bar: None shows one for long work in a terminal.

    Returns:
        The grouping, with keywords (of the answers, or of the texts where there are none), examples and answers.

    Raises:
        InputError: When there is no text, k does not fit, or given labels and texts differ in number.
    """
    rows = check_texts(texts, None)[0]
    if not rows:
        raise InputError("There is no text to cluster.")
    given = _given(given_labels, len(rows))
    _check_k(k, len(rows))
    seed = seed_number(seed)
    if embeddings is not None:
        known_vectors("embeddings", embeddings, len(rows))
    embedder = model if isinstance(model, InBedder) else InBedder(model or "mini")
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
    if embeddings is None:
        warn_of_unreadable(rows, embedder)
    vectors = embedder.encode(rows, instruction, **options) if embeddings is None else np.asarray(embeddings)
    directions = unit(vectors)
    labels = group(directions, k, seed)
    sample = getattr(embeddings, "sample", None)
    read = np.arange(len(rows)) if sample is None else sample
    if len(read) < len(rows):
        read = np.union1d(read, np.concatenate(central_texts(rows, directions, labels, TEXTS_READ)))
    if embedder.backbone.answers:
        answers = _answers(embedder, rows, instruction, read, options)
    else:
        logger.info("%s does not answer: groups are named by the words of their texts.", embedder.name)
        answers = [""] * len(rows)
    labels, notes = tell_apart(answers, labels, merge=k == "auto")
    return ClusterResult(
        instruction=instruction or embedder.defaults.any or "(no instruction)",
        texts=rows,
        labels=labels,
        keywords=keywords(answers if embedder.backbone.answers else rows, labels),
        examples=[[rows[i] for i in chosen] for chosen in central_texts(rows, directions, labels)],
        answers=answers,
        embeddings=vectors,
        head_words=embedder.nearest_words(mean_differences(vectors, labels), top=8),
        label_agreements={name: agreement(labels, values) for name, values in given.items()},
        titles=group_titles(embedder, answers, labels) if titles and embedder.backbone.answers else None,
        notes=notes,
        index=texts.index if hasattr(texts, "iloc") else None,
    )


def _given(labels: Sequence[Any] | Mapping[str, Sequence[Any]] | None, count: int) -> dict[str, list[Any]]:
    """Lists of labels by name."""
    named = labels if isinstance(labels, Mapping) else {} if labels is None else {"label": labels}
    given = {name: entries("given_labels", values) for name, values in named.items()}
    for values in given.values():
        if len(values) != count:
            raise InputError(f"{count} texts but {len(values)} labels: give one label per text.")
    return given


def _answers(
    embedder: InBedder, rows: Sequence[str], instruction: str | None, read: NDArray[np.intp], options: dict[str, Any]
) -> list[str]:
    """The answers of some rows, empty ones of the others."""
    by_row = [""] * len(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TextCutWarning)  # encode said so already
        answers = embedder.answer([rows[i] for i in read], instruction, **options)
    for row, answer in zip(read.tolist(), answers, strict=True):
        by_row[row] = str(answer)
    return by_row


def group(vectors: Vectors, k: int | str = "auto", seed: int = 0) -> Labels:
    """k-means.

    Args:
        vectors: Shape (n, d), of length 1.
        k: Number of groups, or "auto": the most groups, among 2 .. 12 and of ten texts on average, whose silhouette is
            the best or within 0.02 of it.
        seed: Seed of the starting points.

    Returns:
        Group of each row, shape (n,), numbered by falling size.

    Raises:
        InputError: When k is neither "auto" nor a number between 1 and the number of distinct rows.
    """
    _check_k(k, len(vectors))
    distinct = len(np.unique(vectors, axis=0))
    if k != "auto":
        if int(k) > distinct:
            raise InputError(f"k={k}, but the texts have only {distinct} distinct vectors. Choose a smaller k.")
        return _k_means(vectors, int(k), seed)
    if distinct < 3:
        return _k_means(vectors, distinct, seed)
    rows = np.random.default_rng(seed).permutation(len(vectors))[:SILHOUETTE_SAMPLE]
    tried: list[tuple[float, Labels]] = []
    for count in AUTO_RANGE:
        if count >= distinct or count > max(2, len(vectors) // TEXTS_PER_GROUP):
            break
        labels = _k_means(vectors, count, seed)
        tried.append((_silhouette(vectors[rows], labels[rows]), labels))
    best = max(score for score, _ in tried)
    return next(labels for score, labels in reversed(tried) if score >= best - ALIKE)


def _silhouette(vectors: Vectors, labels: Labels) -> float:
    """Mean silhouette, -1 to 1; -1 where the sample holds a single group or only groups of one."""
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(vectors, labels)) if 1 < len(np.unique(labels)) < len(labels) else -1.0


def _k_means(vectors: Vectors, k: int, seed: int) -> Labels:
    from sklearn.cluster import KMeans

    labels = KMeans(n_clusters=k, n_init=10, random_state=seed).fit_predict(vectors)
    order = np.argsort(-np.bincount(labels, minlength=k), kind="stable")
    rank = np.empty(k, dtype=np.int64)
    rank[order] = np.arange(k)
    ranked: Labels = rank[labels]
    return ranked


def _check_k(k: int | str, count: int) -> None:
    if k == "auto":
        return
    if isinstance(k, str) or not 1 <= whole_number("k", k) <= count:
        raise InputError(f"k must be 'auto' or a number from 1 to {count} (the number of texts), not {k!r}.")
