"""The making of groups: vectors, partition, answers and names of texts under a question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import check_columns, check_list, check_string, check_vectors, has_columns
from inbedder.embedder import InBedder
from inbedder.errors import InputError
from inbedder.grouping.cluster_options import ClusterOptions
from inbedder.grouping.describe.describe_groups import GroupedRows, Result, answer_rows, describe_groups
from inbedder.grouping.describe.explain import find_central_texts, measure_agreement
from inbedder.grouping.describe.naming import find_namer, get_namer_name
from inbedder.grouping.mean_wordings import check_wordings, encode_wordings
from inbedder.grouping.no_answer import REFERENCE_LINES, explain_unanswered, find_unanswered
from inbedder.grouping.partition.apart_from import find_group_directions, remove_directions
from inbedder.grouping.partition.deduplicate import merge_duplicate_groups
from inbedder.grouping.partition.partition import Labels, Partition, group, make_regrouping, partition
from inbedder.grouping.partition.stability import measure_stability
from inbedder.grouping.provenance import Provenance
from inbedder.prompting.templates import check_texts
from inbedder.runtime.threads import limit_threads
from inbedder.vectors.vectors import Vectors

ANSWERED_TEXTS_PER_GROUP = 20
"""Central texts of each group that are answered if the vectors come from ``encode_guided``."""
NO_GROUP_NOTE = "No text fits a group: hdbscan found no two dense regions. Choose a smaller min_size (--min-size), or k-means."
ALIKE_NOTE = "All texts are alike under this question, so hdbscan put them into one group."


def make_groups(
    kind: type[Result],
    texts: Sequence[str],
    instruction: str | Sequence[str] | None,
    model: InBedder | str | None,
    cluster_options: ClusterOptions,
    *,
    embeddings: Vectors | None = None,
    given_labels: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    batch_size: int = 32,
    show_progress_bar: bool | None = None,
) -> Result:
    """Group texts by a model's answers to an instruction.

    Args:
        kind: The class of the result.
        texts: n texts, at least one.
        instruction: As in ``clustering.cluster``, like the other arguments.
        model: The model.
        cluster_options: The options of the grouping.
        embeddings: Vectors of the texts, shape (n, d).
        given_labels: Known labels.
        batch_size: Batch size.
        show_progress_bar: None shows a progress bar for long work in a terminal.

    Returns:
        The grouping.

    Raises:
        InputError: As ``cluster``.
    """
    rows = check_texts(texts, None)[0]
    if not rows:
        raise InputError("There is no text to cluster.")
    label_columns = _check_labels(given_labels, len(rows))
    cluster_options.check_count(len(rows))
    method, min_size, seed = cluster_options.method, cluster_options.min_size, cluster_options.seed
    k, apart_from = cluster_options.k, cluster_options.apart_from
    if embeddings is not None:
        embeddings = check_vectors("embeddings", embeddings, rows)
    wordings = _check_question_wordings(instruction, embeddings)
    embedder = model if isinstance(model, InBedder) else InBedder(model or "mini")
    namer = find_namer(cluster_options.namer, embedder)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
    if wordings:
        vectors, instruction = encode_wordings(embedder, rows, wordings, **options)
    else:
        vectors = embedder.encode(rows, instruction, precision="float32", **options) if embeddings is None else embeddings
    question = None if instruction is None else str(instruction)
    answered = slice(None) if not cluster_options.no_answer else _find_answered(embedder, vectors, wordings or question, options)
    unanswered = None if isinstance(answered, slice) else len(rows) - len(answered)
    removed = None
    if apart_from is not None:
        removed = _find_directions_of(embedder, rows, apart_from, vectors, seed, options)
        vectors = remove_directions(vectors, removed)
    with limit_threads(len(rows)):
        groups = _add_left_out(partition(vectors[answered], k, seed, method=method, min_size=min_size), answered, len(rows))
    answers = answer_rows(embedder, rows, question, _choose_rows_to_answer(rows, vectors, groups.labels), options)
    merge, regroup = k == "auto" and groups.branches is None, make_regrouping(method, len(rows), min_size)
    labels, left_out, notes = merge_duplicate_groups(answers, groups.labels, left_out=groups.left_out, merge=merge)
    with limit_threads(len(rows)):
        initial_count = int(groups.labels.max()) + 1
        stability = _measure_stability(vectors[answered], labels[answered], left_out, regroup, seed, initial_count)
    return describe_groups(
        kind,
        embedder,
        question,
        GroupedRows(rows, vectors, labels, answers),
        namer,
        label_agreements={name: measure_agreement(labels, values) for name, values in label_columns.items()},
        stability=stability,
        wordings=wordings,
        choice=groups.choice,
        branches=groups.branches,
        left_out=left_out,
        provenance=Provenance(
            embedder.spec,
            _order_wordings(question, wordings),
            replace(cluster_options, namer=get_namer_name(namer, embedder)),
        ),
        notes=[
            *notes,
            *_explain_single_group(method, groups),
            *_explain_removal(apart_from, removed),
            *explain_unanswered(rows, answers, _mark_left_out(labels, left_out), unanswered),
        ],
        removed_directions=removed,
        index=texts.index if hasattr(texts, "iloc") else None,
    )


def _find_directions_of(
    embedder: InBedder, rows: list[str], question: str, vectors: Vectors, seed: int, options: dict[str, Any]
) -> Vectors:
    """Find the directions in which the groups of another question differ."""
    other_vectors = embedder.encode(rows, check_string("apart_from", question), precision="float32", **options)
    with limit_threads(len(rows)):
        return find_group_directions(vectors, group(other_vectors, "auto", seed))


def _find_answered(
    embedder: InBedder, vectors: Vectors, question: str | list[str] | None, options: dict[str, Any]
) -> NDArray[np.intp]:
    """Find the rows that give an answer to the question."""
    if question is None:
        raise InputError("no_answer (--no-answer) needs a question.")
    lines = list(REFERENCE_LINES)
    if isinstance(question, str):
        reference_vectors = embedder.encode(lines, question, precision="float32", **options)
    else:
        reference_vectors = encode_wordings(embedder, lines, question, **options)[0]
    answered = np.flatnonzero(~find_unanswered(vectors, reference_vectors))
    if not len(answered):
        raise InputError("No text gives an answer to the question. Ask another one, or leave out no_answer (--no-answer).")
    return answered


def _add_left_out(groups: Partition, answered: slice | NDArray[np.intp], count: int) -> Partition:
    """Put the rows that were not partitioned into the group of texts that fit none."""
    if isinstance(answered, slice) or len(answered) == count:
        return groups
    left_out = int(groups.labels.max()) + 1 if groups.left_out is None else groups.left_out
    labels = np.full(count, left_out, dtype=np.int64)
    labels[answered] = groups.labels
    return replace(groups, labels=labels, left_out=left_out)


def _explain_removal(apart_from: str | None, removed: Vectors | None) -> list[str]:
    return [] if removed is None else [f"Grouped apart from {apart_from!r}: what its {len(removed) + 1} groups say is left out."]


def _explain_single_group(method: str, groups: Partition) -> list[str]:
    """Explain why hdbscan found no group, or one group of all texts."""
    if groups.left_out == 0:
        return [NO_GROUP_NOTE]
    is_single = method == "hdbscan" and len(groups.labels) > 1 and not groups.labels.any()
    return [ALIKE_NOTE] if is_single else []


def _check_question_wordings(instruction: str | Sequence[str] | None, embeddings: Vectors | None) -> list[str] | None:
    """Return the checked wordings of a question, or None for a question in one wording."""
    if instruction is None or isinstance(instruction, str):
        return None
    if embeddings is not None:
        raise InputError("embeddings belong to one instruction, but there are several wordings. Leave one of the two out.")
    return check_wordings(instruction)


def _check_labels(labels: Sequence[Any] | Mapping[str, Sequence[Any]] | None, count: int) -> dict[str, list[Any]]:
    """Check lists of labels and collect them by name."""
    is_list = labels is not None and not has_columns(labels)
    columns = {"label": check_list("given_labels", labels)} if is_list else check_columns("given_labels", labels)
    for values in columns.values():
        if len(values) != count:
            raise InputError(f"{count} texts but {len(values)} labels: give one label per text.")
    return columns


def _order_wordings(question: str | None, wordings: list[str] | None) -> str | list[str] | None:
    """List the wordings of a question, the answered one first, or return a question in one wording."""
    return [str(question), *(wording for wording in wordings if wording != question)] if wordings else question


def _measure_stability(
    vectors: Vectors, labels: Labels, left_out: int | None, regroup: Callable[..., Labels], seed: int, initial_count: int
) -> list[float]:
    """Measure the stability of each group; texts that fit no group count as none."""
    fitting = _mark_left_out(labels, left_out)
    initial_count -= left_out is not None
    return measure_stability(vectors, fitting, regroup, seed, initial_count=initial_count) + [0.0] * (left_out is not None)


def _mark_left_out(labels: Labels, left_out: int | None) -> Labels:
    """Mark the texts that fit no group by -1."""
    return labels if left_out is None else np.where(labels == left_out, -1, labels)


def _choose_rows_to_answer(texts: list[str], vectors: Vectors, labels: Labels) -> NDArray[np.intp]:
    """Choose the rows to answer: all, or for guided vectors the sample and the rows nearest to each centre."""
    sample = getattr(vectors, "sample", None)
    if sample is None:
        return np.arange(len(texts))
    return np.union1d(sample, np.concatenate(find_central_texts(texts, vectors, labels, ANSWERED_TEXTS_PER_GROUP)))
