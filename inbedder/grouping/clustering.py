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
from inbedder.encoding.language_check import warn_of_unreadable
from inbedder.errors import InputError, TextCutWarning
from inbedder.grouping.deduplicate import merge_duplicate_groups
from inbedder.grouping.explain import compute_mean_differences, find_central_texts, find_keywords, measure_agreement
from inbedder.grouping.mean_wordings import check_wordings, encode_wordings
from inbedder.grouping.namers import Namer
from inbedder.grouping.naming import collect_contents, find_namer, get_namer_name, name_groups
from inbedder.grouping.partition import Labels, check_groups, make_regrouping, partition
from inbedder.grouping.provenance import NO_INSTRUCTION, Provenance
from inbedder.grouping.result import ClusterResult
from inbedder.grouping.stability import measure_stability
from inbedder.prompting.templates import check_texts
from inbedder.vectors import Vectors

logger = logging.getLogger(__name__)

ANSWERED_TEXTS_PER_GROUP = 20  # of mapped vectors, only these central texts of each group are answered
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
        instruction: The aspect to group by, as a question; None groups general-purpose vectors and names the groups by the
            words of their texts. A list holds the question in several wordings: the mean of the vectors of length 1 under each
            is grouped.
        model: An ``InBedder``, the name of one, or None for the bundled default.
        k: Number of groups, or "auto": at most 50, see ``choose_number``.
        seed: Seed of k-means.
        method: "k-means", "agglomerative" or "hdbscan", see ``partition``.
        min_size: Fewest texts of a group of HDBSCAN; None is ten, or one in a hundred of more than a thousand.
        embeddings: The texts' vectors under the one instruction, shape (n, d), where they are known already. Of those of
            ``encode_guided`` the sample and the texts nearest to each centre are answered, the other answers are empty.
        given_labels: Known labels, one per text, to compare the groups with; or several such lists by their names.
        namer: What names the groups: a name in ``namers.NAMERS`` (listed by ``inbedder cluster --help``), "model:NAME" for
            another model, or a callable.
        batch_size: Batch size.
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
    label_columns = _check_labels(given_labels, len(rows))
    check_groups(k, len(rows), method, min_size)
    seed = seed_number(seed)
    if embeddings is not None:
        known_vectors("embeddings", embeddings, len(rows))
    wordings = _check_question_wordings(instruction, embeddings)
    embedder = model if isinstance(model, InBedder) else InBedder(model or "mini")
    namer = find_namer(namer, embedder)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
    if embeddings is None:
        warn_of_unreadable(rows, embedder)
    if wordings:
        vectors, instruction = encode_wordings(embedder, rows, wordings, **options)
    else:
        vectors = embedder.encode(rows, instruction, **options) if embeddings is None else np.asanyarray(embeddings)
    question = None if instruction is None else str(instruction)
    groups = partition(vectors, k, seed, method=method, min_size=min_size)
    answers = _answer_rows(embedder, rows, question, _choose_rows_to_answer(rows, vectors, groups.labels), options)
    merge, regroup = k == "auto" and groups.branches is None, make_regrouping(method, len(rows), min_size)
    labels, left_out, notes = merge_duplicate_groups(answers, groups.labels, left_out=groups.left_out, merge=merge)
    answered = question is not None and embedder.backbone.answers
    words = find_keywords(answers, labels) if answered else find_keywords(rows, labels, weighting="standing-out")
    return ClusterResult(
        instruction=NO_INSTRUCTION if question is None else question,
        texts=rows,
        labels=labels,
        keywords=words,
        examples=[[rows[i] for i in central_rows] for central_rows in find_central_texts(rows, vectors, labels)],
        answers=answers,
        embeddings=vectors,
        head_words=embedder.nearest_words(compute_mean_differences(vectors, labels), top=8) if answered else [[]] * len(words),
        label_agreements={name: measure_agreement(labels, values) for name, values in label_columns.items()},
        titles=name_groups(namer, collect_contents(rows, answers, vectors, labels, words)),
        stability=_measure_stability(vectors, labels, left_out, regroup, seed, int(groups.labels.max()) + 1),
        wordings=wordings,
        choice=groups.choice,
        branches=groups.branches,
        left_out=left_out,
        provenance=Provenance(embedder.spec, _order_wordings(question, wordings), get_namer_name(namer, embedder)),
        notes=[*notes, *([NO_GROUP] if left_out == 0 else [])],
        index=texts.index if hasattr(texts, "iloc") else None,
    )


def _check_question_wordings(instruction: str | Sequence[str] | None, embeddings: Vectors | None) -> list[str] | None:
    """Check the wordings of the question; None if it is a single one."""
    if instruction is None or isinstance(instruction, str):
        return None
    if embeddings is not None:
        raise InputError("embeddings are of one instruction, and several wordings are given. Leave one of the two out.")
    return check_wordings(instruction)


def _check_labels(labels: Sequence[Any] | Mapping[str, Sequence[Any]] | None, count: int) -> dict[str, list[Any]]:
    """Collect lists of labels by name."""
    named = labels if isinstance(labels, Mapping) else {} if labels is None else {"label": labels}
    columns = {name: entries("given_labels", values) for name, values in named.items()}
    for values in columns.values():
        if len(values) != count:
            raise InputError(f"{count} texts but {len(values)} labels: give one label per text.")
    return columns


def _order_wordings(question: str | None, wordings: list[str] | None) -> str | list[str] | None:
    """List all wordings of the question, the answered one first; without wordings return the question."""
    return [str(question), *(wording for wording in wordings if wording != question)] if wordings else question


def _measure_stability(
    vectors: Vectors, labels: Labels, left_out: int | None, regroup: Callable[..., Labels], seed: int, parts: int
) -> list[float]:
    """Measure the stability of each group; texts that fit none are no group, here and in the samples."""
    fitting = labels if left_out is None else np.where(labels == left_out, -1, labels)
    parts -= left_out is not None
    return measure_stability(vectors, fitting, regroup, seed, parts=parts) + [0.0] * (left_out is not None)


def _choose_rows_to_answer(texts: list[str], vectors: Vectors, labels: Labels) -> NDArray[np.intp]:
    """Choose all rows; for mapped vectors only the sample and the rows nearest to each centre."""
    sample = getattr(vectors, "sample", None)
    if sample is None:
        return np.arange(len(texts))
    return np.union1d(sample, np.concatenate(find_central_texts(texts, vectors, labels, ANSWERED_TEXTS_PER_GROUP)))


def _answer_rows(
    embedder: InBedder, rows: Sequence[str], instruction: str | None, row_ids: NDArray[np.intp], options: dict[str, Any]
) -> list[str]:
    """Answer some rows; the other answers are empty, and all are if nothing is asked or the model does not answer."""
    answers = [""] * len(rows)
    if instruction is None:
        return answers
    if not embedder.backbone.answers:
        logger.info("%s does not answer: groups are named by the words of their texts.", embedder.name)
        return answers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TextCutWarning)  # encode has already warned
        new_answers = embedder.answer([rows[i] for i in row_ids], instruction, **options)
    for row, answer in zip(row_ids.tolist(), new_answers, strict=True):
        answers[row] = str(answer)
    return answers
