"""Base classes of the objectives over tokens and over vectors, and the targets of the latter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from inbedder.vectors.vectors import Vectors
from inbedder_finetune.recipe import PositiveFloat, PositiveInt, Section
from inbedder_finetune.sources import Source

if TYPE_CHECKING:
    from inbedder_finetune.answering.training_row import Row


class Targets(NamedTuple):
    """Target vectors of rows, without duplicates."""

    vectors: Tensor
    """Distinct targets, float16, shape (targets, d)."""
    indices: Sequence[int]
    """Index of each row's target."""


@dataclass(frozen=True)
class Objective(Section, ABC):
    """A term of the loss. Its fields join the section ``objective`` of recipes, so their names are unique."""

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """Whether the objective has a weight."""

    def check_sources(self, sources: Sequence[Source]) -> None:
        """Raise RecipeError for sources that do not fit the objective."""


class TokenObjective(Objective):
    """A term over answer tokens. It is computed even at a weight of 0, since DDP needs a gradient for every parameter."""

    @abstractmethod
    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Compute the weighted sum over tokens from logits, shape (labels, vocabulary), and labels, shape (labels,)."""


@dataclass(frozen=True)
class VectorSettings(Section):
    """Settings of the trained vector."""

    pooling: Literal["1st-gen", "avg-gen", "soft-gen"] | None = None
    """Pooling of the trained vector: "1st-gen", "avg-gen", or for causal LMs "soft-gen", whose loss is the mean over the vectors
    after each soft token; None takes the family's default."""
    soft_tokens: PositiveInt = 3
    """Number of soft tokens of soft-gen, and the result's ``max_new_tokens``."""
    temperature: PositiveFloat = 0.05
    """Temperature of InfoNCE."""


@dataclass(frozen=True)
class VectorObjective(VectorSettings, Objective):
    """A term that compares the vector of each row with a target; negatives come from all rows of the step."""

    @property
    def name(self) -> str:
        """The key of the targets in a batch."""
        return type(self).__name__

    @abstractmethod
    def make_targets(self, splits: Sequence[Sequence[Row]], width: int, cache: str | None) -> Targets:
        """Compute the targets of rows.

        Args:
            splits: Training rows, and held-out rows if any.
            width: d of the trained model.
            cache: Folder of cached vectors; None caches nothing.

        Returns:
            The targets of all splits' rows, in order.
        """

    @abstractmethod
    def compute_loss(self, vectors: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Compute the weighted loss of a step.

        Args:
            vectors: v, float32, shape (batch, d).
            targets: t, shape (batch, d), without gradients.
            indices: Shape (batch,); rows with equal indices have the same target.

        Returns:
            A scalar.
        """


def gather_targets(targets: Tensor, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gather the targets of all processes.

    Args:
        targets: Targets of this process, shape (batch, d).
        indices: Indices of its targets, shape (batch,).

    Returns:
        The targets and the indices of all processes, and the positions of this process's targets among them.
    """
    positions = torch.arange(len(targets), device=targets.device)
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return targets, indices, positions
    shares: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(shares, (targets.cpu(), indices.cpu()))
    before = sum(len(share[1]) for share in shares[: dist.get_rank()])
    vectors, numbers = (torch.cat([share[i] for share in shares]).to(targets.device) for i in (0, 1))
    return vectors, numbers, positions + before


def fit_width(vectors: Vectors, width: int) -> Vectors:
    """Map vectors to another width by a fixed orthonormal map, which keeps cosines exactly when it widens, and nearly otherwise.

    Args:
        vectors: Shape (n, d).
        width: Width of the result.

    Returns:
        Shape (n, width).
    """
    return vectors if vectors.shape[1] == width else vectors @ make_orthonormal_map(vectors.shape[1], width)


def make_orthonormal_map(rows: int, columns: int, seed: int = 0) -> Vectors:
    """Make a fixed map between widths, with orthonormal rows when it widens and orthonormal columns when it narrows.

    Args:
        rows: Width of the input.
        columns: Width of the result.
        seed: Random seed.

    Returns:
        Shape (rows, columns).
    """
    sample = np.random.default_rng(seed).normal(size=(max(rows, columns), min(rows, columns)))
    basis = np.linalg.qr(sample)[0].astype(np.float32)
    return basis.T if columns > rows else basis
