"""Codebooks of free-form answers: codes with definitions and examples, made from groups, applied to texts and updated."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.classification.categories import Category, parse_categories
from inbedder.classification.category_result import NOT_SURE
from inbedder.classification.classifier import classify, embed_categories
from inbedder.classification.codebook_file import parse_codebook, write_codebook
from inbedder.embedder import InBedder
from inbedder.errors import InputError, format_value
from inbedder.grouping.assign.new_groups import Batch, describe_new_groups
from inbedder.grouping.grouped_texts import LEFT_OUT
from inbedder.grouping.names.phrase_names import compute_stem, split_line
from inbedder.grouping.partition.group_distances import find_new_groups, measure_member_distances
from inbedder.grouping.provenance import Provenance, resolve_model
from inbedder.grouping.stored.stored_grouping import StoredGrouping
from inbedder.grouping.stored.stored_groups import StoredGroup
from inbedder.prompting.templates import check_texts
from inbedder.prompting.words import is_none
from inbedder.vectors.vectors import Vectors, normalize_vectors

if TYPE_CHECKING:
    from typing_extensions import Self

    from inbedder.classification.category_result import Classification
    from inbedder.grouping.grouped_texts import GroupedTexts

EXAMPLES_PER_CODE, ANSWERS_PER_DEFINITION = 3, 5
"""Numbers of example texts of a code and of answers in its definition."""
UNFIT_SHARE = 0.05
"""Share of the texts that a codebook is made of which score below its minimum."""
MATCHED, NEW, VANISHED = "matched", "new", "vanished"
"""States of a code after an update."""
MAX_VANISHED_SHARE = 0.1
"""Maximum share of a vanished code, as a part of its earlier share: stray texts score highest in any code."""


@dataclass(frozen=True)
class Code(Category):
    """A category of a codebook; its description is the definition."""

    share: float | None = None
    """Share of the texts that have the code, 0 to 1; None if unknown, as after an edit by hand."""
    previous_share: float | None = None
    """The share before the last update; None if there was none."""
    state: str = ""
    """What the last update found: "matched", "new" or "vanished"; empty without an update."""


@dataclass(frozen=True)
class Codebook:
    """The codes of the answers to a question.

    Example:
        >>> from inbedder import Codebook, cluster
        >>> texts = ["I love cats", "I love dogs", "The parcel is late", "The parcel is lost"]
        >>> codebook = Codebook.of(cluster(texts, "What is it about?", k=2))
        >>> codebook.save("codes.yaml")
        >>> len(Codebook.load("codes.yaml").classify(["I love horses"]).names)
        1
    """

    question: str | None
    """The question that the codes answer; None reads the texts without one."""
    codes: list[Code]
    """k codes, at least two, with distinct names."""
    model: str = "mini"
    """Name of the model that read the texts."""
    min_score: float | None = None
    """Cosine below which a text has none of the codes; None gives each text a code."""
    text_count: int | None = None
    """Number of texts that the shares are of."""

    @classmethod
    def of(cls, result: GroupedTexts, model: InBedder | None = None, *, batch_size: int = 32) -> Self:
        """Make a codebook of groups: a code per group, defined by its commonest answers.

        The examples of a code are the texts whose mean vector is nearest to the group's: typical, and different from each other.
        The shares are those that ``classify`` finds in the same texts, so those of a later update can be compared with them.

        Args:
            result: The grouping of a corpus under one question.
            model: The model that made it; None loads it.
            batch_size: Batch size.

        Returns:
            The codebook, the most frequent code first. 5% of the texts score below its minimum.

        Raises:
            InputError: If the grouping has fewer than two groups, no question or several wordings, or does not name its model.
        """
        if result.provenance is None or not isinstance(result.provenance.instruction, str):
            raise InputError("A codebook needs groups under one question. Make them with cluster(texts, question).")
        count = len(result.names) - (result.left_out is not None)
        if count < 2:
            raise InputError(
                "The answers form a single group, which is no codebook. Set the number of groups, or ask another question."
            )
        embedder = result.provenance.load_model(model)
        members = [np.flatnonzero(result.labels == number) for number in range(count)]
        codes = [
            _make_code(name, rows, result.texts, result.answers, result.embeddings, keywords)
            for name, rows, keywords in zip(result.names, members, result.keywords, strict=False)
        ]
        vectors = None if result.removed_directions is not None else result.embeddings
        codebook = cls(result.provenance.instruction, codes, embedder.spec.model)
        classification = codebook.classify(result.texts, embedder, embeddings=vectors, batch_size=batch_size)
        min_score = round(float(np.quantile(classification.scores.max(axis=1), UNFIT_SHARE)), 4)
        codebook = replace(codebook, min_score=min_score)
        vectors = classification.embeddings
        classification = codebook.classify(result.texts, embedder, embeddings=vectors, batch_size=batch_size)
        codebook = codebook._measure_shares(classification)
        return replace(codebook, codes=sorted(codebook.codes, key=lambda code: -(code.share or 0)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a codebook, which may have been edited by hand.

        Args:
            path: A YAML file from ``save``. It needs a question, and at least two codes with names.

        Returns:
            The codebook.

        Raises:
            InputError: If the file cannot be read, or an entry is missing, unknown or of the wrong kind.
        """
        settings, rows = parse_codebook(path)
        codes = [Code(**{"examples": tuple(row.pop("examples")), "description": row.pop("definition"), **row}) for row in rows]
        parse_categories(codes)
        if reserved := [code.name for code in codes if code.name in (LEFT_OUT, NOT_SURE)]:
            raise InputError(f"{format_value(reserved[0])} is what texts without a code get. Choose another name for the code.")
        return cls(codes=codes, **settings)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the codebook as YAML, atomically.

        Args:
            path: Path of the file; an existing one is replaced.

        Raises:
            InputError: If the file cannot be written.
        """
        settings = {name: getattr(self, name) for name in ("question", "model", "text_count", "min_score")}
        write_codebook(path, settings, [{**vars(code), "definition": code.description} for code in self.codes])

    def rows(self) -> list[dict[str, Any]]:
        """Return the codes as rows of a table, one per example, which ``inbedder classify --into`` reads.

        Returns:
            Rows of category, description, share and example; after an update also previous_share and state.
        """
        update_columns = [name for name in ("previous_share", "state") if any(code.state for code in self.codes)]
        return [
            {"category": code.name, "description": code.description, "share": code.share}
            | {name: getattr(code, name) for name in update_columns}
            | {"example": example}
            for code in self.codes
            for example in code.examples or ("",)
        ]

    def classify(self, texts: Sequence[str], model: InBedder | str | None = None, **options: Any) -> Classification:
        """Classify texts into the codes.

        Args:
            texts: n texts, at least one.
            model: The model; None loads the one that made the codebook. For another one the codebook's minimum does not hold.
            **options: Keyword arguments of ``inbedder.classify``; min_score replaces the codebook's.

        Returns:
            The code, cosines and probabilities of each text.

        Raises:
            InputError: If there is no text, or an option is wrong.
            ModelError: If the model cannot be loaded.
        """
        embedder = resolve_model(model or self.model)
        if options.get("min_score") is None and embedder.spec.model == self.model:
            options["min_score"] = self.min_score
        return classify(texts, self.question, self.codes, model=embedder, **options)

    def update(self, texts: Sequence[str], model: InBedder | None = None, *, batch_size: int = 32) -> Self:
        """Update the codebook by new texts. The codes keep their names, definitions and examples.

        Texts that score below the minimum have none of the codes. Groups of at least ten of them become new codes, if they are
        about as tight as the texts of the other codes.

        Args:
            texts: n texts, at least one.
            model: The model that made the codebook; None loads it.
            batch_size: Batch size.

        Returns:
            A codebook with the new codes last. Each code has its old and new share, and its state: "vanished" if the share fell
            below a tenth of the old one.

        Raises:
            InputError: If there is no text, the model is another one, or the codebook has no minimum.
            ModelError: If the model cannot be loaded.
        """
        if self.min_score is None:
            raise InputError("The codebook has no min_score, so no text can be new. Add it, such as min_score: 0.5.")
        embedder = resolve_model(model or self.model)
        if embedder.spec.model != self.model:
            models = f"{format_value(self.model)}, not {format_value(embedder.spec.model)}"
            raise InputError(f"The min_score of the codebook is of {models}. Leave out the model, or make a new codebook.")
        rows = check_texts(texts, None)[0]
        options: dict[str, Any] = {"batch_size": batch_size}
        classification = self.classify(rows, embedder, **options)
        answers = Provenance(embedder.spec, self.question).answer(embedder, rows, **options)
        batch = Batch(rows, normalize_vectors(classification.embeddings), answers, None)
        extended = replace(self, codes=[*self.codes, *self._find_new_codes(classification, batch, embedder)])
        updated = extended._measure_shares(extended.classify(rows, embedder, embeddings=batch.vectors, **options))
        old_codes, codes = self.codes, updated.codes
        states = [_find_state(old, code.share or 0) for old, code in zip(old_codes, codes, strict=False)]
        states += [NEW] * (len(codes) - len(old_codes))
        old_shares = [*(code.share for code in old_codes), *[None] * (len(codes) - len(old_codes))]
        return replace(
            updated,
            codes=[
                replace(code, previous_share=share, state=state)
                for code, share, state in zip(codes, old_shares, states, strict=True)
            ],
        )

    def _find_new_codes(self, classification: Classification, batch: Batch, embedder: InBedder) -> list[Code]:
        """Find new codes of texts that have none of the codes."""
        labels, vectors = classification.labels, batch.vectors
        coded_rows = [rows for number in range(len(self.codes)) if len(rows := np.flatnonzero(labels == number)) > 1]
        if not coded_rows:
            return []
        distances = [measure_member_distances(vectors[rows], vectors[rows].mean(axis=0), len(rows)) for rows in coded_rows]
        unfit_rows = np.flatnonzero(labels < 0)
        parts = find_new_groups(vectors[unfit_rows], labels[np.concatenate(coded_rows)], np.concatenate(distances))
        clusters = [unfit_rows[rows] for rows in parts]
        if not clusters:
            return []
        groups = [
            StoredGroup(code.name, int((labels == number).sum()), [], list(code.examples) or [code.meaning], {})
            for number, code in enumerate(self.codes)
        ]
        centres = embed_categories(embedder, self.codes, self.question)
        provenance = Provenance(embedder.spec, self.question)
        nothing: NDArray[Any] = np.empty(0, dtype=np.int64)
        stored = StoredGrouping(provenance, groups, centres, nothing, nothing.astype(np.float32))
        return [
            _make_code(group.name, rows, batch.texts, batch.answers, vectors, group.keywords)
            for group, rows in zip(describe_new_groups(stored, clusters, batch), clusters, strict=True)
        ]

    def _measure_shares(self, classification: Classification) -> Self:
        """Set the share of each code among classified texts."""
        total, counts = len(classification.texts), classification.count_texts()
        return replace(
            self,
            codes=[replace(code, share=round(counts[code.name] / total, 4)) for code in self.codes],
            text_count=total,
        )


def _make_code(
    name: str, rows: NDArray[np.intp], texts: Sequence[str], answers: Sequence[str], vectors: Vectors, keywords: Sequence[str]
) -> Code:
    """Make the code of a group, given the positions of its texts."""
    group_answers = [answers[row] for row in rows.tolist()]
    definition = ", ".join(find_common_answers(group_answers) or keywords[:ANSWERS_PER_DEFINITION])
    positions = find_representative_rows(normalize_vectors(vectors[rows]), [texts[row] for row in rows.tolist()])
    return Code(name, definition, tuple(texts[row] for row in rows[positions].tolist()))


def find_common_answers(answers: Sequence[str]) -> list[str]:
    """Find the commonest answers of a group, each of which has a word that those before it lack.

    Args:
        answers: Answers of the group's texts; empty ones and "none" do not count.

    Returns:
        At most five answers, the commonest first; answers that only one text has follow only if all are such.
    """
    counts = Counter(" ".join(answer.split()) for answer in answers if answer.strip() and not is_none(answer))
    minimum = min(2, max(counts.values(), default=0))
    selected: list[str] = []
    known_stems: set[str] = set()
    for answer, count in counts.most_common():
        stems = {compute_stem(word) for word in split_line(answer) if len(word) > 1}
        if count >= minimum and not stems <= known_stems and len(selected) < ANSWERS_PER_DEFINITION:
            selected.append(answer)
            known_stems |= stems
    return selected


def find_representative_rows(vectors: Vectors, texts: Sequence[str], count: int = EXAMPLES_PER_CODE) -> list[int]:
    """Find the texts of a group whose mean vector is nearest to that of all, one after the other (herding, Welling 2009).

    Args:
        vectors: Vectors of length 1, shape (n, d).
        texts: n texts; equal ones are found once, and blank ones never.
        count: Maximum number of texts.

    Returns:
        Positions; the first is the most central text.
    """
    centre, total = vectors.mean(axis=0), np.zeros(vectors.shape[1], dtype=np.float32)
    rows_by_text = {text.strip(): row for row, text in reversed(list(enumerate(texts))) if text.strip()}
    candidates = sorted(rows_by_text.values())
    selected: list[int] = []
    while candidates and len(selected) < count:
        distances = np.linalg.norm((total + vectors[candidates]) / (len(selected) + 1) - centre, axis=1)
        selected.append(candidates.pop(int(distances.argmin())))
        total = total + vectors[selected[-1]]
    return selected


def _find_state(code: Code, share: float) -> str:
    """Find the state of a code whose new share is known."""
    return VANISHED if share <= MAX_VANISHED_SHARE * (code.share or 0) else MATCHED
