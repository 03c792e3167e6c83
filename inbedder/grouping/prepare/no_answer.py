"""Texts that give no answer to a question, such as "Oh." under "What is it about?", and groups with invented answers.

A model answers every text, if need be with words of its own. The vector of a text without an answer says little more than the
question, so it lies near the vector of an empty text under the same question. How near depends on question and corpus, so the
limit lies between the corpus's median cosine and that of a few lines without content. The measure suits questions of topic: a
judgement is found even in a short line (``scripts.bench.grouping``, table in ``evaluation/README.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError
from inbedder.grouping.names.phrase_names import compute_stem, split_line
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

MIN_FOUND_SHARE, MAX_INVENTED_SHARE = 0.15, 0.07
"""Minimum share of answers with a word of their text (mean over the groups) if answers come from the texts; and the maximum share
in a group whose answers are invented."""
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
    empty, *lines = normalize_vectors(reference_vectors)
    cosines = normalize_vectors(vectors) @ empty
    text_median, line_median = np.median(cosines), np.median(np.stack(lines) @ empty)
    is_unanswered: NDArray[np.bool_] = cosines >= text_median + LIMIT_POSITION * (line_median - text_median)
    return is_unanswered


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


def explain_unanswered(texts: Sequence[str], answers: Sequence[str], labels: Labels, unanswered: int | None) -> list[str]:
    """Write the notes on texts without an answer and on groups with invented answers.

    Args:
        texts: n texts.
        answers: One answer per text, n strings.
        labels: Group of each text, shape (n,), 0 .. k-1; -1 for a text in no group.
        unanswered: Number of texts that were left out because they give no answer; None if none were sought.

    Returns:
        Sentences for the reader.
    """
    notes = []
    if unanswered is not None:
        notes.append(
            f"{unanswered} of {len(texts)} texts fit no group, because they say as little about the question as lines like "
            f"{EMPTY_LINES[0]!r} do."
        )
    for group in find_invented_groups(texts, answers, labels):
        notes.append(
            f"Group {group + 1} may be invented: its answers' words are in almost none of its texts. Read some of them, or try "
            "no_answer (--no-answer)."
        )
    return notes


def find_invented_groups(texts: Sequence[str], answers: Sequence[str], labels: Labels) -> list[int]:
    """Find the groups whose answers name what their texts do not, although the answers of the other groups come from the texts.

    Args:
        texts: n texts.
        answers: One answer per text, n strings; empty answers do not count.
        labels: Group of each text, shape (n,), 0 .. k-1; -1 for a text in no group.

    Returns:
        The groups in rising order; none if answers do not come from the texts, as those of a judgement.
    """
    shares: dict[int, float] = {}
    for group in range(int(labels.max(initial=-1)) + 1):
        rows = [row for row in np.flatnonzero(labels == group).tolist() if answers[row].strip()][:MAX_READ_ROWS]
        if rows:
            shares[group] = sum(_share_stem(texts[row], answers[row]) for row in rows) / len(rows)
    if not shares or np.mean(list(shares.values())) < MIN_FOUND_SHARE:
        return []
    return [group for group, share in shares.items() if share <= MAX_INVENTED_SHARE]


def _share_stem(text: str, answer: str) -> bool:
    """Return whether a text holds a word of its answer, in any inflection."""
    stems = [{compute_stem(word) for word in split_line(line) if len(word) > 1} for line in (text, answer)]
    return not stems[0].isdisjoint(stems[1])
