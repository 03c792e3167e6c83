"""Mean vectors over several wordings of one question.

Each wording moves the vectors in its own direction; the mean keeps what the wordings share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.errors import InputError, format_value
from inbedder.prompting.templates import check_strings
from inbedder.vectors.vectors import Vectors, compute_row_cosines, normalize_vectors

if TYPE_CHECKING:
    from inbedder.embedder import InBedder


def check_wordings(wordings: Sequence[str], min_count: int = 1) -> list[str]:
    """Check the wordings of a question.

    Args:
        wordings: The question in several wordings.
        min_count: Minimum number of wordings.

    Returns:
        The wordings.

    Raises:
        InputError: If there are fewer, one occurs twice, or one is not a string.
    """
    wordings = check_strings("wordings", wordings)
    if len(wordings) < min_count:
        raise InputError(f"The question has {len(wordings)} wordings. Give at least {min_count}.")
    if duplicates := [wording for wording in wordings if wordings.count(wording) > 1]:
        raise InputError(f"The wording {format_value(duplicates[0])} occurs twice. Give different wordings.")
    return wordings


def average_wordings(vectors: Vectors) -> tuple[Vectors, int]:
    """Average vectors, scaled to length 1, over several wordings.

    Args:
        vectors: Vectors from ``InBedder.encode_many``, shape (m, n, d).

    Returns:
        The mean, float32, shape (n, d), and the position of the wording whose vectors lie closest to it.
    """
    directions = normalize_vectors(vectors)
    mean: Vectors = directions.mean(axis=0, dtype=np.float32)
    return mean, int(np.argmax([compute_row_cosines(wording_directions, mean).mean() for wording_directions in directions]))


def encode_question(
    model: InBedder, texts: Sequence[str], instruction: str | Sequence[str] | None, **options: Any
) -> tuple[Vectors, str | None]:
    """Embed texts under a question in one wording or several.

    Args:
        model: The model.
        texts: n texts.
        instruction: The question, a list of its wordings, or None.
        **options: Keyword arguments of ``InBedder.encode``.

    Returns:
        Vectors, float32, shape (n, d), and the question. Of several wordings, the mean of the vectors scaled to length 1, and the
        wording whose vectors lie closest to it.

    Raises:
        InputError: If there is no wording, or one occurs twice.
    """
    if instruction is None or isinstance(instruction, str):
        return model.encode(texts, instruction, precision="float32", **options), instruction
    wordings = check_wordings(instruction)
    mean, nearest = average_wordings(model.encode_many(texts, wordings, precision="float32", **options))
    return mean, wordings[nearest]
