"""The words of a text that its answer rests on, found by leaving out one word after the other.

A word's weight is how far the vector turns without it: 1 minus the cosine of the vectors with and without the word (occlusion,
Li et al. 2016, "Understanding Neural Networks through Representation Erasure").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from inbedder.grouping.grouped_texts import NO_INSTRUCTION
from inbedder.vectors.vectors import compute_row_cosines

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.grouping.grouped_texts import GroupedTexts

Result = TypeVar("Result", bound="GroupedTexts")
WORD = re.compile(r"\w+(?:['’-]\w+)*")
MAX_WORDS = 60
"""Number of words of a text that are tried."""
MIN_RELATIVE_WEIGHT = 0.5
"""Minimum weight of a word that the answer rests on, relative to the largest of its text."""


class WordWeight(NamedTuple):
    """A word of a text."""

    start: int
    """Position of its first character."""
    end: int
    """Position after its last character."""
    weight: float
    """1 minus the cosine of the text's vectors with and without it, 0 to 2."""


def weigh_words(
    model: InBedder, texts: Sequence[str], instruction: str | None, *, batch_size: int = 32
) -> list[list[WordWeight]]:
    """Weigh the words of texts by what their vectors lose without them.

    Args:
        model: The model.
        texts: n texts.
        instruction: The question, or None.
        batch_size: Batch size.

    Returns:
        The first words of each text with their weights, in order; n lists.

    Example:
        >>> from inbedder import InBedder
        >>> from inbedder.grouping.describe.word_evidence import weigh_words
        >>> (words,) = weigh_words(InBedder(), ["The soup was cold."], "What is the complaint about?")
        >>> len(words), words[1].start
        (4, 4)
    """
    spans = [[match.span() for match in WORD.finditer(text)][:MAX_WORDS] for text in texts]
    variants = [text[:start] + text[end:] for text, text_spans in zip(texts, spans, strict=True) for start, end in text_spans]
    vectors = model.encode([*texts, *variants], instruction, batch_size=batch_size, precision="float32", show_progress_bar=False)
    owners = np.repeat(np.arange(len(texts)), [len(text_spans) for text_spans in spans])
    weights = iter((1 - compute_row_cosines(vectors[len(texts) :], vectors[owners])).tolist())
    return [[WordWeight(start, end, max(next(weights), 0.0)) for start, end in text_spans] for text_spans in spans]


def find_evidence(words: Sequence[WordWeight]) -> list[tuple[int, int]]:
    """Find the words that an answer rests on.

    Args:
        words: Words of one text with their weights.

    Returns:
        Start and end of each word whose weight is at least half of the largest, in order.
    """
    largest = max((word.weight for word in words), default=0.0)
    return [(word.start, word.end) for word in words if largest > 0 and word.weight >= MIN_RELATIVE_WEIGHT * largest]


def add_evidence(result: Result, model: InBedder, *, batch_size: int = 32) -> Result:
    """Find the words that the answers of a grouping's examples rest on.

    Args:
        result: The grouping.
        model: The model that made it.
        batch_size: Batch size.

    Returns:
        The grouping with ``evidence``.
    """
    instruction = None if result.instruction == NO_INSTRUCTION else result.instruction
    texts = [text for examples in result.examples for text in examples]
    evidence = iter([find_evidence(words) for words in weigh_words(model, texts, instruction, batch_size=batch_size)])
    return replace(result, evidence=[[next(evidence) for _ in examples] for examples in result.examples])
