"""Clustering of texts under an instruction, and its result."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import check_columns, check_list, check_vectors, has_columns
from inbedder.encoding.language_scope import check_language_once
from inbedder.errors import InputError, import_extra
from inbedder.grouping.cluster_options import ClusterOptions, make_cluster_signature
from inbedder.grouping.describe.deduplicate import merge_duplicate_groups
from inbedder.grouping.describe.describe_groups import describe_groups
from inbedder.grouping.describe.explain import find_central_texts, measure_agreement
from inbedder.grouping.describe.question_effect import explain_yes_or_no
from inbedder.grouping.grouped_texts import NO_INSTRUCTION, make_group_columns
from inbedder.grouping.names.naming import find_namer, get_namer_name
from inbedder.grouping.partition.outline import find_branches
from inbedder.grouping.partition.partition import Partition, group, make_regrouping, mark_left_out, partition
from inbedder.grouping.partition.stability import MAX_RESAMPLED_ROWS, measure_stability
from inbedder.grouping.prepare.apart_from import find_group_directions, remove_directions
from inbedder.grouping.prepare.exact import round_vectors
from inbedder.grouping.prepare.mean_wordings import check_wordings, encode_question
from inbedder.grouping.prepare.no_answer import (
    explain_invented_groups,
    explain_unanswered,
    find_answered_rows,
)
from inbedder.grouping.provenance import Provenance, resolve_model
from inbedder.grouping.stored.edits import EditableGroups
from inbedder.grouping.stored.stored_grouping import StoredGrouping
from inbedder.io.html_tables import render_html_table
from inbedder.prompting.templates import check_question, check_texts
from inbedder.runtime.threads import limit_threads
from inbedder.vectors.vectors import Labels, Vectors

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self, Unpack

    from inbedder.embedder import InBedder
    from inbedder.grouping.cluster_options import ClusterKwargs

logger = logging.getLogger(__name__)
ANSWERED_TEXTS_PER_GROUP = 20
"""Central texts of each group that are answered if the vectors come from ``encode_guided``."""
NO_GROUP_NOTE = "No text fits a group: there are no two dense regions of texts. Allow smaller groups, or group by k-means."
ALIKE_NOTE = "All texts are alike under this question, so they form one group."

MAX_NAMELESS_ROWS = 2
"""Maximum number of texts that are too few to name their groups."""
FEW_TEXTS_NOTE = "Too few texts to name a group: a name is what several texts have in common."


class ClusterResult(EditableGroups):
    """One grouping of a corpus, with the fields of ``GroupedTexts``.

    Example:
        >>> from inbedder import cluster
        >>> result = cluster(["I love cats", "I love dogs", "The parcel is late"], "What is it about?", k=2)
        >>> len(result.names), result.sizes
        (2, [2, 1])
    """

    def _repr_html_(self) -> str:
        groups = zip(self.names, self.sizes, self.keywords, self.examples, strict=True)
        rows = [[i, name, size, ", ".join(words[:5]), texts[:2]] for i, (name, size, words, texts) in enumerate(groups, 1)]
        title = f"{self.instruction} – {len(self.texts):,} texts"
        return render_html_table(title, ["group", "name", "texts", "keywords", "examples"], rows)

    def rows(self, top: int = 1) -> list[dict[str, Any]]:
        """Return one table row per text.

        Args:
            top: Number of groups per text.

        Returns:
            n rows of text, group (from 1), group_name, answer, fit and between, and with ``top`` above 1 the shares of the best
            groups (see ``make_group_columns``).
        """
        columns = {"text": self.texts, **make_group_columns([self], top)}
        return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]

    def to_frame(self, top: int = 1) -> pd.DataFrame:
        """Return the rows as a data frame.

        Args:
            top: Number of groups per text.

        Returns:
            Columns text, group, group_name, answer, fit and between, and shares (see ``rows``); texts from a pandas column keep
            its index.

        Raises:
            MissingExtraError: If pandas is not installed.
        """
        return import_extra("pandas", "tables").DataFrame(self.rows(top), index=self.index)

    def split(
        self, number: int, instruction: str, k: int | str = "auto", *, model: InBedder | str | None = None, **options: Any
    ) -> Self:
        """Split a group by another question.

        Args:
            number: Number of the group, from 0.
            instruction: The question, such as "Which part of it broke?".
            k: Number of new groups, or "auto".
            model: The model that made the grouping, if it is loaded; None loads it.
            **options: Further keyword arguments of ``cluster``, such as seed and namer.

        Returns:
            The grouping with the new groups, renumbered by falling size.

        Raises:
            InputError: If there is no such group, it has fewer than two texts, or the model is another one.
        """
        number = self._check_group("group", number)
        rows = np.flatnonzero(self.labels == number)
        if len(rows) < 2:
            raise InputError("The group has only one text. Choose a larger one.")
        assert self.provenance is not None
        embedder = self.provenance.load_model(model)
        options.setdefault("namer", self.provenance.options.namer)
        options.setdefault("exact", self.is_exact)
        result = cluster([self.texts[row] for row in rows], instruction, embedder, k, **options)
        return self._split_into(number, rows, result)

    def save_html(self, path: str | os.PathLike[str], *, page_model: InBedder | None = None) -> None:
        """Write a self-contained HTML report.

        Args:
            path: Path of the report; an existing file is replaced.
            page_model: ``mini``, to write it into the page, which then answers further questions by itself and has 24 MB more.

        Raises:
            InputError: If the file cannot be written, or the model cannot be in a page.
        """
        from inbedder.grouping.report.page import save_report

        save_report([self], path, page_model=page_model)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the groups; ``Grouping.load(folder)`` assigns new texts to them.

        Args:
            folder: A new or empty folder, or one with a saved grouping, which is replaced.

        Raises:
            InputError: If the folder cannot be used, or no text fits a group.
        """
        StoredGrouping.of(self).save(folder)


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
        **options: Further fields of ``ClusterOptions``: levels (numbers of branches and of groups, in place of k), method
            ("k-means", "agglomerative" or "hdbscan"; see ``partition``), min_size (of an HDBSCAN group), namer (a name in
            ``namers.NAMERS`` or a callable), apart_from (another question, such as "Is it positive or negative?": the directions
            in which its groups differ are removed from the vectors), and no_answer (whether texts that give no answer to the
            question, such as "Oh.", form the last group, "none of these"; for questions of topic), and exact (whether
            groups, names and page shall be the same on every machine: the model computes in float64, and the vectors are rounded;
            see ``prepare.exact``).

    Returns:
        The grouping, with answers, keywords and examples. If the model does not answer, answers are empty and keywords come from
        the texts.

    Raises:
        InputError: If there is no text, the question is blank, k is out of range, labels and texts differ in number, the namer
            is unknown, embeddings come with several wordings, exact comes with guided vectors or a model that does not compute in
            float64, or no text gives an answer.

    Example:
        >>> from inbedder import cluster
        >>> texts = ["I love cats", "I love dogs", "The parcel is late", "The parcel is lost"]
        >>> result = cluster(texts, "What is it about?", k=2)
        >>> result.labels.shape, result.sizes
        ((4,), [2, 2])
    """
    cluster_options = ClusterOptions.parse(k=k, seed=seed, **options)
    rows = check_texts(texts, None)[0]
    if not rows:
        raise InputError("There is no text to cluster.")
    label_columns = _check_labels(given_labels, len(rows))
    cluster_options.check_count(len(rows))
    if embeddings is not None:
        if cluster_options.exact and getattr(embeddings, "sample", None) is not None:
            raise InputError("exact reads every text, and guided vectors are estimated. Leave one of the two out.")
        embeddings = check_vectors("embeddings", embeddings, rows)
    wordings = _list_wordings(instruction, embeddings)
    embedder = resolve_model(model, exact=cluster_options.exact)
    namer = find_namer(cluster_options.namer)
    run_options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
    with check_language_once(is_checked=None if embeddings is None else True):
        vectors, answers, question = _read_question(embedder, rows, wordings or instruction, embeddings, run_options)
        if cluster_options.exact:
            vectors = round_vectors(vectors)
        answered_rows = None
        if cluster_options.no_answer:
            answered_rows = find_answered_rows(embedder, vectors, wordings or question, **run_options)
        vectors, removed = _remove_other_question(embedder, rows, vectors, cluster_options, run_options)
        groups = _partition_rows(vectors, answered_rows, cluster_options)
        used_options = replace(cluster_options, namer=get_namer_name(namer))
        provenance = Provenance(embedder.spec, _put_first(question, wordings), used_options)
        if question is not None and not embedder.backbone.answers:
            logger.info("The model does not answer, so groups are named by the words of their texts.")
        if answers is None:
            rows_to_answer = _choose_rows_to_answer(rows, vectors, groups.labels)
            answers = provenance.answer(embedder, rows, rows_to_answer, **run_options)
        merge = cluster_options.count == "auto"
        labels, left_out, notes = merge_duplicate_groups(answers, groups.labels, left_out=groups.left_out, merge=merge)
        fitting = mark_left_out(labels, left_out)
        return ClusterResult(
            instruction=NO_INSTRUCTION if question is None else question,
            texts=rows,
            labels=labels,
            answers=answers,
            embeddings=vectors,
            label_agreements={name: measure_agreement(labels, values) for name, values in label_columns.items()},
            stability=_measure_stability(vectors, fitting, answered_rows, groups, cluster_options),
            wordings=wordings,
            choice=groups.choice if len(rows) > MAX_NAMELESS_ROWS else None,
            branches=find_branches(vectors, fitting, cluster_options.levels and cluster_options.levels[0]),
            left_out=left_out,
            provenance=provenance,
            notes=[
                *notes,
                *explain_yes_or_no(answers),
                *_explain_partition(groups, answered_rows, removed, cluster_options),
                *explain_invented_groups(embedder, rows, answers, vectors, fitting, wordings or question, removed, **run_options),
            ],
            removed_directions=removed,
            index=texts.index if hasattr(texts, "iloc") else None,
            **describe_groups(rows, vectors, labels, answers, namer)._asdict(),
        )


cluster.__signature__ = make_cluster_signature(cluster)  # type: ignore[attr-defined]


def _read_question(
    embedder: InBedder,
    rows: list[str],
    instruction: str | Sequence[str] | None,
    embeddings: Vectors | None,
    run_options: dict[str, Any],
) -> tuple[Vectors, list[str] | None, str | None]:
    """Embed the rows unless their vectors are given; return vectors, answers if the same pass gives them, and the question."""
    if embeddings is not None:
        return embeddings, None, None if instruction is None else str(instruction)
    if isinstance(instruction, str) and embedder.backbone.answers:
        return *embedder.encode(rows, instruction, return_answers=True, precision="float32", **run_options), instruction
    vectors, question = encode_question(embedder, rows, instruction, **run_options)
    return vectors, None, question


def _remove_other_question(
    embedder: InBedder, rows: list[str], vectors: Vectors, options: ClusterOptions, run_options: dict[str, Any]
) -> tuple[Vectors, Vectors | None]:
    """Remove the directions in which the groups of the question ``apart_from`` differ; returns them too, None without one."""
    if options.apart_from is None:
        return vectors, None
    other_vectors = embedder.encode(rows, options.apart_from, precision="float32", **run_options)
    if options.exact:
        other_vectors = round_vectors(other_vectors)
    with limit_threads(len(rows)):
        directions = find_group_directions(vectors, group(other_vectors, "auto", options.seed))
    remaining = remove_directions(vectors, directions)
    return round_vectors(remaining) if options.exact else remaining, directions


def _partition_rows(vectors: Vectors, answered_rows: NDArray[np.intp] | None, options: ClusterOptions) -> Partition:
    """Partition the rows, or only those that give an answer."""
    k, seed, method, min_size = options.count, options.seed, options.method, options.min_size
    with limit_threads(len(vectors)):
        if answered_rows is None:
            return partition(vectors, k, seed, method=method, min_size=min_size)
        groups = partition(vectors[answered_rows], k, seed, method=method, min_size=min_size)
        return groups.add_left_out(answered_rows, len(vectors))


def _measure_stability(
    vectors: Vectors, labels: Labels, answered_rows: NDArray[np.intp] | None, groups: Partition, options: ClusterOptions
) -> list[float]:
    """Measure the stability of each group; that of the texts that fit none, whose label is -1, is 0."""
    regroup = make_regrouping(options.method, len(vectors), options.min_size)
    has_left_out = groups.left_out is not None
    initial_count = int(groups.labels.max()) + 1 - has_left_out
    with limit_threads(MAX_RESAMPLED_ROWS):
        if answered_rows is not None:
            vectors, labels = vectors[answered_rows], labels[answered_rows]
        return measure_stability(vectors, labels, regroup, options.seed, initial_count=initial_count) + [0.0] * has_left_out


def _explain_partition(
    groups: Partition, answered_rows: NDArray[np.intp] | None, removed: Vectors | None, options: ClusterOptions
) -> list[str]:
    """Write the notes on few texts, on a lack of groups, on removed directions and on unanswered texts."""
    count = len(groups.labels)
    notes = [FEW_TEXTS_NOTE] if count <= MAX_NAMELESS_ROWS else []
    if groups.left_out == 0:
        notes.append(NO_GROUP_NOTE)
    elif options.method == "hdbscan" and count > 1 and not groups.labels.any():
        notes.append(ALIKE_NOTE)
    if removed is not None:
        notes.append(f"Grouped apart from {options.apart_from!r}: what its {len(removed) + 1} groups say is left out.")
    if answered_rows is not None:
        notes.append(explain_unanswered(count - len(answered_rows), count))
    return notes


def _list_wordings(instruction: str | Sequence[str] | None, embeddings: Vectors | None) -> list[str] | None:
    """List the wordings of a question; None if it has only one, which embeddings need."""
    check_question(instruction)
    if instruction is None or isinstance(instruction, str):
        return None
    wordings = check_wordings(instruction)
    if embeddings is not None:
        raise InputError("embeddings belong to one instruction, but there are several wordings. Leave one of the two out.")
    return wordings


def _put_first(question: str | None, wordings: list[str] | None) -> str | list[str] | None:
    """Order the wordings of a question with the one first that the groups are shown under."""
    return [str(question), *(wording for wording in wordings if wording != question)] if wordings else question


def _check_labels(labels: Sequence[Any] | Mapping[str, Sequence[Any]] | None, count: int) -> dict[str, list[Any]]:
    """Check lists of labels and collect them by name."""
    is_list = labels is not None and not has_columns(labels)
    columns = {"label": check_list("given_labels", labels)} if is_list else check_columns("given_labels", labels)
    for values in columns.values():
        if len(values) != count:
            raise InputError(f"{count} texts but {len(values)} labels: give one label per text.")
    return columns


def _choose_rows_to_answer(texts: list[str], vectors: Vectors, labels: Labels) -> NDArray[np.intp]:
    """Choose the rows to answer: all, or for guided vectors the sample and the rows nearest to each centre."""
    sample = getattr(vectors, "sample", None)
    if sample is None:
        return np.arange(len(texts))
    return np.union1d(sample, np.concatenate(find_central_texts(texts, vectors, labels, ANSWERED_TEXTS_PER_GROUP)))
