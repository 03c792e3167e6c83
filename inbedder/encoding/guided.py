"""A new instruction over a corpus that was read before: a linear map from generic vectors to instructed ones.

A sample of the texts is encoded under the instruction, a ridge regression is fitted from their generic vectors to the instructed
ones, and applied to the generic vectors of all texts::

    W = argmin |Y - X W|^2 + a |W|^2        X: (s, k) generic, Y: (s, d) instructed, both centred on the sample's means

The strength a is chosen by leave-one-out error (scikit-learn's RidgeCV); how well the map holds beyond its sample is measured
by the cosine of held-out rows in five folds. GSTransform (ACL 2025) does this with labels made by a large model; here are none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import check_integer, check_seed
from inbedder.errors import InputError
from inbedder.vectors import AnnotatedArray, Vectors, compute_row_cosines

logger = logging.getLogger(__name__)

RIDGE_STRENGTHS = np.logspace(-3, 4, 15)
NUM_FOLDS = 5
MIN_COSINE = 0.75
"""Below this held-out cosine the map is not used."""
MIN_SAMPLE = 50
"""Smallest sample that is mapped from."""


class GuidedVectors(AnnotatedArray):
    """Vectors under an instruction, float32, shape (n, d), that also say how they were made."""

    metadata = ("cosine", "sample")
    cosine: float | None
    """Mean cosine of mapped and encoded vectors of held-out rows; 1.0 when all rows were encoded. None for derived arrays."""
    sample: NDArray[np.intp] | None
    """Rows that were encoded under the instruction. None for derived arrays."""


def encode_guided(
    encode: Callable[[NDArray[np.intp]], Vectors], generic: Vectors, *, sample: int = 1000, seed: int = 0, low: float = MIN_COSINE
) -> GuidedVectors:
    """Vectors under an instruction from generic vectors and an encoded sample.

    Args:
        encode: Gives the instructed vectors of rows, shape (rows, d).
        generic: Generic vectors of all texts, shape (n, k).
        sample: How many texts to encode.
        seed: Seed of the drawn sample and of the folds.
        low: Held-out cosine below which all texts are encoded instead.

    Returns:
        Vectors, the cosine, and which rows were encoded.

    Raises:
        InputError: When the sample is too small to fit a map.
    """
    if check_integer("sample", sample) < MIN_SAMPLE:
        raise InputError(f"A map needs a sample of at least {MIN_SAMPLE} texts, not {sample}.")
    seed, count = check_seed("seed", seed), len(generic)
    if count <= sample:
        return _annotate(encode(np.arange(count)), 1.0, np.arange(count))
    rows = np.sort(np.random.default_rng(seed).choice(count, sample, replace=False))
    targets = encode(rows)
    mapped, cosine = fit_map(generic[rows], targets, seed)
    if cosine < low:
        logger.warning(
            "A map from %d texts reaches a cosine of %.2f only, below %.2f: all %d texts are encoded.", sample, cosine, low, count
        )
        vectors = np.empty((count, targets.shape[1]), dtype=np.float32)
        vectors[rows] = targets
        rest = np.setdiff1d(np.arange(count), rows)
        vectors[rest] = encode(rest)
        return _annotate(vectors, 1.0, np.arange(count))
    logger.info("Mapped %d texts from a sample of %d; cosine of held-out rows %.3f.", count, sample, cosine)
    vectors = mapped(generic)
    vectors[rows] = targets
    return _annotate(vectors, cosine, rows)


def _annotate(vectors: Vectors, cosine: float, sample: NDArray[np.intp]) -> GuidedVectors:
    with_facts = vectors.view(GuidedVectors)
    with_facts.cosine, with_facts.sample = cosine, sample
    return with_facts


def fit_map(generic: Vectors, instructed: Vectors, seed: int = 0) -> tuple[Callable[[Vectors], Vectors], float]:
    """Fit the map.

    Args:
        generic: X, shape (s, k).
        instructed: Y, shape (s, d).
        seed: Seed of the folds.

    Returns:
        The map, and the mean cosine of held-out rows.
    """
    from sklearn.linear_model import Ridge, RidgeCV
    from sklearn.model_selection import KFold

    scale = float(generic.std()) or 1.0
    model = RidgeCV(alphas=RIDGE_STRENGTHS).fit(generic / scale, instructed)
    held_out = []
    for kept, left in KFold(NUM_FOLDS, shuffle=True, random_state=seed).split(generic):
        ridge = Ridge(alpha=model.alpha_).fit(generic[kept] / scale, instructed[kept])
        held_out.append(compute_row_cosines(ridge.predict(generic[left] / scale), instructed[left]))

    def mapped(vectors: Vectors) -> Vectors:
        return np.asarray(model.predict(vectors / scale), dtype=np.float32)

    return mapped, float(np.concatenate(held_out).mean())
