"""Texts that give no answer to a question, such as "Oh." under "What is it about?", and groups with invented answers.

A model answers every text, if need be with words of its own. The vector of a text without an answer says little more than the
question, so it lies near the vector of an empty text under the same question. How near depends on question and corpus, so the
limit lies between the corpus's median cosine and that of a few lines without content. The measure suits questions of topic: a
judgement is found even in a short line (``scripts.bench.grouping``, table in ``evaluation/README.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError
from inbedder.grouping.grouped_texts import LEFT_OUT
from inbedder.grouping.names.phrase_names import compute_stem, split_line
from inbedder.grouping.prepare.apart_from import remove_directions
from inbedder.grouping.prepare.mean_wordings import encode_question
from inbedder.vectors.vectors import Labels, Vectors, normalize_vectors

if TYPE_CHECKING:
    from inbedder.embedder import InBedder

EMPTY_LINES = ("Oh.", "Oh no.", "Yes.", "No.", "OK.", "Hm.", "Well.", "Right.", "Really?", "What?", "I see.", "Thank you.")
"""Lines that say nothing about a topic."""
REFERENCE_LINES = ("", *EMPTY_LINES)
"""The texts whose vectors ``find_unanswered`` needs."""
LIMIT_POSITION = 2 / 3
"""Position of the limit between the median cosines of the corpus (0) and of the lines without content (1)."""

MIN_FOUND_SHARE = 0.17
"""Minimum share of answers with a word of their text if answers come from the texts. Questions of topic have 0.19 or more;
feelings and judgements, which texts rarely name, have 0.14 or less."""
MAX_INVENTED_SHARE = 0.07
"""Maximum share of answers with a word of their text in a group with invented answers."""
MIN_EMPTY_POSITION = 0.25
"""Minimum position of the median cosine of such a group (see ``LIMIT_POSITION``)."""
MAX_READ_ROWS = 200
"""Maximum number of texts of a group that are compared with their answers."""


def find_unanswered(vectors: Vectors, reference_vectors: Vectors) -> NDArray[np.bool_]:
    """Find the texts that give no answer to a question.

    Args:
        vectors: Vectors of the texts under the question, shape (n, d); only their directions count.
        reference_vectors: Vectors of ``REFERENCE_LINES`` under the same question, shape (13, d).

    Returns:
        Whether the cosine of each text to the empty text reaches the limit, bool, shape (n,).
    """
    cosines, limit = _measure_emptiness(vectors, reference_vectors, LIMIT_POSITION)
    is_unanswered: NDArray[np.bool_] = cosines >= limit
    return is_unanswered


def _measure_emptiness(vectors: Vectors, reference_vectors: Vectors, position: float) -> tuple[Vectors, float]:
    """Measure the cosine of each text to the empty text, and the limit at a position between corpus and lines without content."""
    empty, *lines = normalize_vectors(reference_vectors.astype(np.promote_types(vectors.dtype, np.float32)))
    cosines = normalize_vectors(vectors) @ empty
    text_median, line_median = np.median(cosines), np.median(np.stack(lines) @ empty)
    return cosines, float(text_median + position * (line_median - text_median))


def find_answered_rows(
    model: InBedder, vectors: Vectors, instruction: str | Sequence[str] | None, **options: Any
) -> NDArray[np.intp]:
    """Find the texts that give an answer to a question.

    Args:
        model: The model.
        vectors: Vectors of n texts under the question, shape (n, d); only their directions count.
        instruction: The question, or a list of its wordings.
        **options: Keyword arguments of ``InBedder.encode``.

    Returns:
        Positions of the texts, from 0.

    Raises:
        InputError: If there is no question, or no text gives an answer.
    """
    if instruction is None:
        raise InputError("no_answer (--no-answer) needs a question.")
    reference_vectors = encode_question(model, REFERENCE_LINES, instruction, **options)[0]
    answered_rows = np.flatnonzero(~find_unanswered(vectors, reference_vectors))
    if not len(answered_rows):
        raise InputError("No text gives an answer to the question. Ask another one, or leave out no_answer (--no-answer).")
    return answered_rows


def explain_unanswered(count: int, total: int) -> str:
    """Write the note on the texts that were left out because they give no answer.

    Args:
        count: Their number.
        total: Number of all texts.

    Returns:
        A sentence for the reader.
    """
    return (
        f"{count} of {total} texts are in {LEFT_OUT!r}, because they say as little about the question as lines "
        f"like {EMPTY_LINES[0]!r} do."
    )


def explain_invented_groups(
    model: InBedder,
    texts: Sequence[str],
    answers: Sequence[str],
    vectors: Vectors,
    labels: Labels,
    instruction: str | Sequence[str] | None,
    removed: Vectors | None = None,
    **options: Any,
) -> list[str]:
    """Write the notes on groups with invented answers.

    Args:
        model: The model.
        texts: n texts.
        answers: One answer per text, n strings.
        vectors: Vectors of the texts under the question, shape (n, d).
        labels: Group of each text, shape (n,), 0 .. k-1; -1 for a text in no group.
        instruction: The question, or a list of its wordings; without one there are no notes.
        removed: Directions that were removed from the vectors, shape (r, d), or None.
        **options: Keyword arguments of ``InBedder.encode``.

    Returns:
        Sentences for the reader.
    """
    if instruction is None:
        return []

    def embed_reference() -> Vectors:
        reference = encode_question(model, REFERENCE_LINES, instruction, **options)[0]
        return reference if removed is None else remove_directions(reference, removed)

    return [
        f"Group {group + 1} may be invented: its answers' words are in almost none of its texts. Read some of them; what gives "
        "no answer can be left out of the groups."
        for group in find_invented_groups(texts, answers, vectors, labels, embed_reference)
    ]


def find_invented_groups(
    texts: Sequence[str],
    answers: Sequence[str],
    vectors: Vectors,
    labels: Labels,
    embed_reference: Callable[[], Vectors],
) -> list[int]:
    """Find the groups whose answers name what their texts do not, and whose texts say as little as lines without content.

    Args:
        texts: n texts.
        answers: One answer per text, n strings; empty answers do not count.
        vectors: Vectors of the texts under the question, shape (n, d); only their directions count.
        labels: Group of each text, shape (n,), 0 .. k-1; -1 for a text in no group.
        embed_reference: Returns the vectors of ``REFERENCE_LINES`` under the same question, shape (13, d); called only if needed.

    Returns:
        The groups in rising order; none if answers do not come from the texts, as those of a judgement.
    """
    found_counts: dict[int, tuple[int, int]] = {}
    for group in range(int(labels.max(initial=-1)) + 1):
        rows = [row for row in np.flatnonzero(labels == group).tolist() if answers[row].strip()][:MAX_READ_ROWS]
        if rows:
            found_counts[group] = sum(_share_stem(texts[row], answers[row]) for row in rows), len(rows)
    shared_count, answer_count = (sum(column) for column in zip(*found_counts.values(), strict=True)) if found_counts else (0, 0)
    candidates = [group for group, (count, size) in found_counts.items() if count <= MAX_INVENTED_SHARE * size]
    if not candidates or shared_count < MIN_FOUND_SHARE * answer_count:
        return []
    reference_vectors = embed_reference()
    if reference_vectors.shape[1] != vectors.shape[1]:  # the caller's vectors are not the model's
        return []
    cosines, limit = _measure_emptiness(vectors, reference_vectors, MIN_EMPTY_POSITION)
    return [group for group in candidates if np.median(cosines[labels == group]) >= limit]


def _share_stem(text: str, answer: str) -> bool:
    """Return whether a text holds a word of its answer, in any inflection."""
    stems = [{compute_stem(word) for word in split_line(line) if len(word) > 1} for line in (text.replace("@", " "), answer)]
    return not stems[0].isdisjoint(stems[1])
