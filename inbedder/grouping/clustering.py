"""Groups of texts under an instruction, named by the answers, or by the texts where the model answers nothing."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import entries, known_vectors, seed_number
from inbedder.embedder import InBedder
from inbedder.errors import InputError, TextCutWarning
from inbedder.grouping.deduplicate import tell_apart
from inbedder.grouping.explain import agreement, central_texts, keywords, mean_differences
from inbedder.grouping.naming import Namer, contents, find_namer, name_groups, name_of
from inbedder.grouping.origin import Origin
from inbedder.grouping.partition import Labels, check_groups, partition, regrouping
from inbedder.grouping.result import ClusterResult
from inbedder.grouping.stability import group_stability
from inbedder.grouping.wordings import check_wordings, encode_wordings
from inbedder.legibility import warn_of_unreadable
from inbedder.prompting import check_texts
from inbedder.vectors import Vectors

logger = logging.getLogger(__name__)

TEXTS_READ = 20  # of each group of mapped vectors so many central texts are answered
NO_GROUP = (
    "Every text was left out: hdbscan found no place where enough of them lie close together. "
    "Choose a smaller min_size (--min-size), or k-means."
)


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
    namer: str | Namer = "words",
    batch_size: int = 32,
    show_progress_bar: bool | None = None,
) -> ClusterResult:
    """Group texts by their answers to an instruction; by their vectors alone where the model does not answer.

    Args:
        texts: n texts, at least one.
        instruction: The aspect to group by, as a question; None is ``@generic``, as for ``InBedder.encode``. A list holds the
            question in several wordings: grouped is the mean of the vectors of length 1 under each.
        model: An ``InBedder``, the name of one, or None for the bundled default.
        k: Number of groups, or "auto": at most 50, see ``choose_number``.
        seed: Seed of k-means.
        method: "k-means", "agglomerative" or "hdbscan", see ``partition``.
        min_size: Fewest texts of a group of HDBSCAN; None is ten, or one in a hundred of more than a thousand.
        embeddings: The texts' vectors under the one instruction, shape (n, d), where they are known already. Of those of
            ``encode_guided`` the sample and the texts nearest to each centre are answered, the other answers are empty.
        given_labels: Known labels, one per text, to compare the groups with; or several such lists by their names.
        namer: What names the groups (see ``naming``): "words" of the answers, "class-tfidf", "central" (the most central answer),
            "model" (a title that the model writes, best with ``small``), "model:NAME", or a callable.
        batch_size: Most texts in one pass.
        show_progress_bar: None shows one for long work in a terminal.

    Returns:
        The grouping, with keywords (of the answers, or of the texts where there are none), examples and answers.

    Raises:
        InputError: When there is no text, k does not fit, given labels and texts differ in number, there is no such namer, or
            vectors are given for several wordings.
    """
    rows = check_texts(texts, None)[0]
    if not rows:
        raise InputError("There is no text to cluster.")
    given = _given(given_labels, len(rows))
    check_groups(k, len(rows), method, min_size)
    seed = seed_number(seed)
    if embeddings is not None:
        known_vectors("embeddings", embeddings, len(rows))
    wordings = _wordings(instruction, embeddings)
    embedder = model if isinstance(model, InBedder) else InBedder(model or "mini")
    names = find_namer(namer, embedder)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
    if embeddings is None:
        warn_of_unreadable(rows, embedder)
    if wordings:
        vectors, instruction = encode_wordings(embedder, rows, wordings, **options)
    else:
        vectors = embedder.encode(rows, instruction, **options) if embeddings is None else np.asanyarray(embeddings)
    question = None if instruction is None else str(instruction)
    found = partition(vectors, k, seed, method=method, min_size=min_size)
    answers = _answers(embedder, rows, question, _rows_to_answer(rows, vectors, found.labels), options)
    merge, regroup = k == "auto" and found.branches is None, regrouping(method, len(rows), min_size)
    labels, left_out, notes = tell_apart(answers, found.labels, left_out=found.left_out, merge=merge)
    words = keywords(answers, labels) if embedder.backbone.answers else keywords(rows, labels, weighting="standing-out")
    return ClusterResult(
        instruction=question or embedder.defaults.any or "(no instruction)",
        texts=rows,
        labels=labels,
        keywords=words,
        examples=[[rows[i] for i in chosen] for chosen in central_texts(rows, vectors, labels)],
        answers=answers,
        embeddings=vectors,
        head_words=embedder.nearest_words(mean_differences(vectors, labels), top=8),
        label_agreements={name: agreement(labels, values) for name, values in given.items()},
        titles=name_groups(names, contents(rows, answers, vectors, labels, words)),
        stability=_stability(vectors, labels, left_out, regroup, seed, int(found.labels.max()) + 1),
        wordings=wordings,
        choice=found.choice,
        branches=found.branches,
        left_out=left_out,
        origin=Origin.of(embedder, _asked(question, wordings), name_of(names, embedder)),
        notes=[*notes, *([NO_GROUP] if left_out == 0 else [])],
        index=texts.index if hasattr(texts, "iloc") else None,
    )


def _wordings(instruction: str | Sequence[str] | None, embeddings: Vectors | None) -> list[str] | None:
    """The wordings of the question where there are several."""
    if instruction is None or isinstance(instruction, str):
        return None
    if embeddings is not None:
        raise InputError("embeddings are of one instruction, and several wordings are given. Leave one of the two out.")
    return check_wordings(instruction)


def _given(labels: Sequence[Any] | Mapping[str, Sequence[Any]] | None, count: int) -> dict[str, list[Any]]:
    """Lists of labels by name."""
    named = labels if isinstance(labels, Mapping) else {} if labels is None else {"label": labels}
    given = {name: entries("given_labels", values) for name, values in named.items()}
    for values in given.values():
        if len(values) != count:
            raise InputError(f"{count} texts but {len(values)} labels: give one label per text.")
    return given


def _asked(question: str | None, wordings: list[str] | None) -> str | list[str] | None:
    """The question, or all its wordings, the chosen one first."""
    return [str(question), *(wording for wording in wordings if wording != question)] if wordings else question


def _stability(
    vectors: Vectors, labels: Labels, left_out: int | None, regroup: Callable[..., Labels], seed: int, parts: int
) -> list[float]:
    """Stability of each group; texts that fit none are no group, here as in the draws."""
    fitting = labels if left_out is None else np.where(labels == left_out, -1, labels)
    parts -= left_out is not None
    return group_stability(vectors, fitting, regroup, seed, parts=parts) + [0.0] * (left_out is not None)


def _rows_to_answer(texts: list[str], vectors: Vectors, labels: Labels) -> NDArray[np.intp]:
    """All rows; of mapped vectors the sample and the rows nearest to each centre."""
    sample = getattr(vectors, "sample", None)
    if sample is None:
        return np.arange(len(texts))
    return np.union1d(sample, np.concatenate(central_texts(texts, vectors, labels, TEXTS_READ)))


def _answers(
    embedder: InBedder, rows: Sequence[str], instruction: str | None, read: NDArray[np.intp], options: dict[str, Any]
) -> list[str]:
    """The answers of some rows, empty ones of the others and of a model that does not answer."""
    by_row = [""] * len(rows)
    if not embedder.backbone.answers:
        logger.info("%s does not answer: groups are named by the words of their texts.", embedder.name)
        return by_row
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TextCutWarning)  # encode said so already
        answers = embedder.answer([rows[i] for i in read], instruction, **options)
    for row, answer in zip(read.tolist(), answers, strict=True):
        by_row[row] = str(answer)
    return by_row
