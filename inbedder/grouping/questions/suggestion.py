"""Questions worth asking of a corpus: many answers, stable groups, and other groups than no question or a better one gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any

import numpy as np

from inbedder.arguments import check_integer
from inbedder.embedder import InBedder
from inbedder.errors import InputError
from inbedder.grouping.clustering import ClusterResult, cluster
from inbedder.grouping.partition.partition import group
from inbedder.grouping.prepare.mean_wordings import check_wordings
from inbedder.grouping.provenance import resolve_model
from inbedder.prompting.templates import check_texts, read_prompts
from inbedder.vectors.vectors import Labels

SAMPLED_TEXTS = 300
"""Default number of texts that the questions are tried on."""
MIN_TEXTS = 20
RICH_ANSWERS = 8
"""Number of equally frequent answers from which a question is no better for more."""


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A question and what makes it worth asking, each from 0 to 1 except the number of answers.

    Example:
        >>> from inbedder import suggest_questions
        >>> texts = ["The soup was cold.", "Our waiter was rude.", "Great tacos!", "Too loud."] * 5
        >>> (suggestion,) = suggest_questions(texts, ["@topic"])
        >>> suggestion.instruction, len(suggestion.result.texts)
        ('@topic', 20)
    """

    instruction: str
    """The question."""
    distinct_answers: float
    """Effective number of answers: how many there would be if all were equally frequent."""
    stability: float
    """Mean stability of its groups, weighted by their sizes."""
    difference: float
    """Difference from the groups without a question: 1 minus the adjusted Rand index."""
    novelty: float
    """Difference from the most similar groups of a question that ranks higher."""
    score: float
    """Geometric mean of the richness of its answers, stability, difference and novelty; the questions are ranked by it."""
    result: ClusterResult
    """Its groups of the sampled texts."""


def suggest_questions(
    texts: Sequence[str],
    instructions: Sequence[str] | None = None,
    model: InBedder | str | None = None,
    *,
    sample: int = SAMPLED_TEXTS,
    seed: int = 0,
    batch_size: int = 32,
) -> list[Suggestion]:
    """Rank questions by what they show of a corpus.

    Args:
        texts: n texts, at least 20.
        instructions: The questions to try; None tries the named instructions.
        model: An ``InBedder``, the name of a model, or None for the bundled default.
        sample: Maximum number of texts that the questions are tried on.
        seed: Seed of the sample and of k-means.
        batch_size: Batch size.

    Returns:
        The questions, the best first. Each next one is the best among the rest, given those that rank higher.

    Raises:
        InputError: If there are too few texts, or no question.

    Example:
        >>> from inbedder import suggest_questions
        >>> texts = ["The soup was cold.", "Our waiter was rude.", "Great tacos!", "Too loud."] * 5
        >>> [each.instruction for each in suggest_questions(texts, ["@topic", "@sentiment"])][0] in ("@topic", "@sentiment")
        True
    """
    rows = check_texts(texts, None)[0]
    if len(rows) < MIN_TEXTS:
        raise InputError(f"At least {MIN_TEXTS} texts are needed to compare questions; got {len(rows)}.")
    names = [f"@{name}" for name in read_prompts("instructions")] if instructions is None else check_wordings(instructions)
    embedder = resolve_model(model)
    check_integer("sample", sample, MIN_TEXTS)
    if len(rows) > sample:
        rows = [rows[i] for i in np.sort(np.random.default_rng(seed).choice(len(rows), sample, replace=False))]
    results = [cluster(rows, name, embedder, seed=seed, batch_size=batch_size, show_progress_bar=False) for name in names]
    general_vectors = embedder.encode(rows, batch_size=batch_size, precision="float32", show_progress_bar=False)
    return _rank([_measure(result, general_vectors, seed) for result in results])


def _measure(result: ClusterResult, general_vectors: Any, seed: int) -> Suggestion:
    """Measure one question by itself."""
    counts = np.array(list(Counter(answer.casefold() for answer in result.answers if answer).values()))
    shares = counts / counts.sum()
    distinct_answers = exp(-float((shares * np.log(shares)).sum()))
    stability = float(np.average(result.stability or [0.0], weights=result.sizes)) if len(result.sizes) > 1 else 0.0
    count = min(len(result.sizes), len(np.unique(general_vectors, axis=0)))
    difference = _compute_difference(result.labels, group(general_vectors, count, seed))
    suggestion = Suggestion(result.instruction, distinct_answers, stability, difference, 1.0, 0.0, result)
    return _set_novelty(suggestion, 1.0)


def _compute_difference(first: Labels, second: Labels) -> float:
    from sklearn.metrics import adjusted_rand_score

    return float(np.clip(1 - adjusted_rand_score(first, second), 0, 1))


def _set_novelty(suggestion: Suggestion, novelty: float) -> Suggestion:
    """Set the novelty and the score that follows from it."""
    richness = min(1.0, log(suggestion.distinct_answers) / log(RICH_ANSWERS))
    parts = (richness, suggestion.stability, suggestion.difference, novelty)
    return replace(suggestion, novelty=novelty, score=float(np.prod(parts)) ** (1 / len(parts)))


def _rank(suggestions: list[Suggestion]) -> list[Suggestion]:
    """Take the best question, then the best of the rest by what is new in it, and so on."""
    ranked: list[Suggestion] = []
    while suggestions:
        if ranked:
            last = ranked[-1].result.labels
            differences = [min(each.novelty, _compute_difference(each.result.labels, last)) for each in suggestions]
            suggestions = [_set_novelty(each, difference) for each, difference in zip(suggestions, differences, strict=True)]
        suggestions.sort(key=lambda each: -each.score)
        ranked.append(suggestions.pop(0))
    return ranked
