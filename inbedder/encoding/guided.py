"""Vectors under a new instruction by a linear map from general-purpose vectors, fitted on a sample of the texts.

The general-purpose vectors are those of two layers of the base encoder, where there is one (``encode_general``).
The sample is encoded under the instruction. A ridge regression is fitted from its general-purpose vectors to the instructed
ones, and applied to the general-purpose vectors of all texts::

    W = argmin |Y - X W|^2 + a |W|^2        X: (s, k) general-purpose, Y: (s, d) instructed, both centred on the sample's means

Leave-one-out error chooses the strength a (scikit-learn's RidgeCV). The cosine of held-out rows in five folds measures how well
the map generalizes. GSTransform (ACL 2025) fits such a map to the labels of a large model; this map needs no labels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import check_integer, check_seed
from inbedder.errors import InputError
from inbedder.vectors.pooling import TWO_LAYERS
from inbedder.vectors.vectors import AnnotatedArray, Vectors, compute_row_cosines

if TYPE_CHECKING:
    from inbedder.encoding.protocols import Encoder

logger = logging.getLogger(__name__)

RIDGE_STRENGTHS = np.logspace(-3, 4, 15)
NUM_FOLDS = 5
MIN_COSINE = 0.75
"""Minimum held-out cosine; below it, all texts are encoded."""
MIN_SAMPLE = 50
"""Minimum number of texts in the sample."""


def has_two_layers(model: Encoder) -> bool:
    """Return whether a model has a base encoder with the pooling "two-layers"."""
    base = model.pipeline.base_encoder
    return base is not None and TWO_LAYERS in base.pipeline.backbone.poolings


def encode_general(model: Encoder, texts: Sequence[str], *, truncate_dim: int | None = None, **options: Any) -> Vectors:
    """Embed texts without an instruction, for a map: with the base encoder's pooling "two-layers" where the model has one.

    Args:
        model: The model.
        texts: n texts.
        truncate_dim: Number of leading dimensions to keep of a model without such a base encoder; a base encoder's are kept.
        **options: Further keyword arguments of ``encode``.

    Returns:
        float32, shape (n, k). The first dimensions are those of ``model.encode(texts)``.
    """
    base = model.pipeline.base_encoder
    if base is None or not has_two_layers(model):
        return model.encode(texts, truncate_dim=truncate_dim, **options)
    return base.replace(pooling=TWO_LAYERS).encode(texts, **options)


class GuidedVectors(AnnotatedArray):
    """Vectors under an instruction, float32, shape (n, d), with the quality of the map that computed them."""

    metadata = ("cosine", "sample")
    cosine: float | None
    """Mean cosine of mapped and encoded vectors of held-out rows; 1.0 if all rows were encoded. None for derived arrays."""
    sample: NDArray[np.intp] | None
    """Rows that were encoded under the instruction. None for derived arrays."""


def encode_guided(
    encode: Callable[[NDArray[np.intp]], Vectors],
    generic: Vectors,
    *,
    sample: int = 1000,
    seed: int = 0,
    min_cosine: float = MIN_COSINE,
) -> GuidedVectors:
    """Compute vectors under an instruction from general-purpose vectors and an encoded sample.

    Args:
        encode: Returns the instructed vectors of rows, shape (rows, d).
        generic: General-purpose vectors of all texts, shape (n, k).
        sample: Number of texts to encode.
        seed: Seed of the sample and of the folds.
        min_cosine: Held-out cosine below which all texts are encoded instead.

    Returns:
        The vectors, with the cosine and the encoded rows.

    Raises:
        InputError: If the sample is too small to fit a map.
    """
    if check_integer("sample", sample) < MIN_SAMPLE:
        raise InputError(f"A map needs a sample of at least {MIN_SAMPLE} texts, not {sample}.")
    seed, count = check_seed("seed", seed), len(generic)
    if count <= sample:
        return _annotate(encode(np.arange(count)), 1.0, np.arange(count))
    sampled_rows = np.sort(np.random.default_rng(seed).choice(count, sample, replace=False))
    sampled_vectors = encode(sampled_rows)
    map_vectors, cosine = fit_map(generic[sampled_rows], sampled_vectors, seed)
    if cosine < min_cosine:
        logger.warning(
            "A map from %d texts reaches a cosine of only %.2f, below %.2f. Encoding all %d texts.",
            sample,
            cosine,
            min_cosine,
            count,
        )
        vectors = np.empty((count, sampled_vectors.shape[1]), dtype=np.float32)
        vectors[sampled_rows] = sampled_vectors
        remaining_rows = np.setdiff1d(np.arange(count), sampled_rows)
        vectors[remaining_rows] = encode(remaining_rows)
        return _annotate(vectors, 1.0, np.arange(count))
    logger.info("Mapped %d texts from a sample of %d; cosine of held-out rows %.3f.", count, sample, cosine)
    vectors = map_vectors(generic)
    vectors[sampled_rows] = sampled_vectors
    return _annotate(vectors, cosine, sampled_rows)


def _annotate(vectors: Vectors, cosine: float, sample: NDArray[np.intp]) -> GuidedVectors:
    annotated = vectors.view(GuidedVectors)
    annotated.cosine, annotated.sample = cosine, sample
    return annotated


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
    cosines = []
    for train_rows, test_rows in KFold(NUM_FOLDS, shuffle=True, random_state=seed).split(generic):
        ridge = Ridge(alpha=model.alpha_).fit(generic[train_rows] / scale, instructed[train_rows])
        cosines.append(compute_row_cosines(ridge.predict(generic[test_rows] / scale), instructed[test_rows]))

    weights, offset = (model.coef_.T / scale).astype(np.float32), np.asarray(model.intercept_, dtype=np.float32)

    def map_vectors(vectors: Vectors) -> Vectors:
        mapped: Vectors = vectors.astype(np.float32, copy=False) @ weights
        mapped += offset
        return mapped

    return map_vectors, float(np.concatenate(cosines).mean())
