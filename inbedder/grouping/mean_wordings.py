"""The same question in several wordings: the mean of the vectors under each.

A synonym in the question moves the vectors, in a direction that is the wording's own; the mean keeps what the wordings share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.errors import InputError, shown
from inbedder.prompting.templates import check_strings
from inbedder.vectors import Vectors, row_cosines, unit

if TYPE_CHECKING:
    from inbedder.embedder import InBedder


def check_wordings(wordings: Sequence[str], min_count: int = 1) -> list[str]:
    """Check the wordings of a question.

    Args:
        wordings: The question in several wordings.
        min_count: Minimum number of wordings.

    Returns:
        A list of them.

    Raises:
        InputError: When there are fewer, one stands twice, or one is no string.
    """
    wordings = check_strings("wordings", wordings)
    if len(wordings) < min_count:
        raise InputError(f"{len(wordings)} wordings of the question: give at least {min_count}.")
    if duplicates := [wording for wording in wordings if wordings.count(wording) > 1]:
        raise InputError(f"The wording {shown(duplicates[0])} is given twice. Give different wordings.")
    return wordings


def mean_over_wordings(vectors: Vectors) -> tuple[Vectors, int]:
    """Average the vectors of length 1 under several wordings.

    Args:
        vectors: Those of ``InBedder.encode_many``, shape (m, n, d).

    Returns:
        The mean, float32, shape (n, d), and the number of the wording whose vectors lie nearest to it.
    """
    directions = unit(vectors)
    mean: Vectors = directions.mean(axis=0, dtype=np.float32)
    return mean, int(np.argmax([row_cosines(under, mean).mean() for under in directions]))


def encode_wordings(model: InBedder, texts: Sequence[str], wordings: Sequence[str], **options: Any) -> tuple[Vectors, str]:
    """Embed texts under several wordings of one question.

    Args:
        model: The model that embeds them.
        texts: n texts.
        wordings: The question in several wordings, all different.
        **options: As ``InBedder.encode_many`` takes them.

    Returns:
        The mean of the vectors of length 1, shape (n, d), and the wording whose vectors lie nearest to it.

    Raises:
        InputError: When there is no wording, or one stands twice.
    """
    wordings = check_wordings(wordings)
    mean, nearest = mean_over_wordings(model.encode_many(texts, wordings, **options))
    return mean, wordings[nearest]
