"""The two kinds of objectives, and the targets that those of vectors have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from inbedder.embedder import InBedder
from inbedder.errors import RecipeError
from inbedder.vectors import Vectors
from inbedder_finetune.recipe import Above0, Section
from inbedder_finetune.sources import Source

if TYPE_CHECKING:
    from inbedder_finetune.answering.training_row import Row


class Targets(NamedTuple):
    """The vectors that rows are compared with, each distinct one once."""

    vectors: Tensor
    """float16, shape (distinct targets, d)."""
    indices: Sequence[int]
    """The target of each row."""


@dataclass(frozen=True)
class Objective(Section, ABC):
    """One term of the loss; its fields join the section ``objective`` of recipes, so no two objectives share a name."""

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """Whether the settings give it any weight."""

    def check_sources(self, sources: Sequence[Source]) -> None:
        """Raise RecipeError for sources that the objective cannot learn from."""


class TokenObjective(Objective):
    """A term over answer tokens. It is computed even at a weight of 0: every parameter then has a gradient, which DDP needs."""

    @abstractmethod
    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Compute the weighted sum over tokens of logits, shape (labels, vocabulary), and labels, shape (labels,)."""


@dataclass(frozen=True)
class VectorSettings(Section):
    """Which vector of the model is trained."""

    pooling: Literal["1st-gen", "avg-gen"] | None = None
    """The vector that is trained: "1st-gen" or "avg-gen"; None is the family's default."""
    temperature: Above0 = 0.05
    """Temperature of InfoNCE and of the teacher's similarities."""
    subtract: str | None = None
    """A model whose vectors of the instructions are subtracted from the pooled vectors before any loss is computed: for a model
    that will be used with ``subtract_instruction``, the one that it starts from."""

    def make_question_targets(self, splits: Sequence[Sequence[Row]], width: int) -> Targets:
        """Embed the rows' instructions with an empty text, which ``subtract_instruction`` subtracts.

        Args:
            splits: Learned rows, and held-out rows if any.
            width: d of the trained model.

        Returns:
            One vector per instruction of a split.

        Raises:
            RecipeError: When the model has another width.
        """
        assert self.subtract is not None
        model = InBedder(self.subtract, subtract_instruction=False, beside="none", normalize=False)
        vectors: list[Vectors] = []
        indices: list[int] = []
        for rows in splits:
            first, numbers = sum(map(len, vectors)), dict[str, int]()
            indices += [first + numbers.setdefault(row.instruction, len(numbers)) for row in rows]
            vectors.append(np.asarray(model.encode([""] * len(numbers), list(numbers))))
        if vectors[0].shape[1] != width:
            raise RecipeError(
                f"objective.subtract: {self.subtract} has vectors of {vectors[0].shape[1]} numbers, the model that learns of "
                f"{width}. Name the model that it starts from."
            )
        return Targets(torch.from_numpy(np.concatenate(vectors)).half(), indices)


@dataclass(frozen=True)
class VectorObjective(VectorSettings, Objective):
    """A term that compares the model's vector of each row with a target; its negatives are those of the whole step."""

    @property
    def name(self) -> str:
        """The key of its targets in a batch."""
        return type(self).__name__

    @abstractmethod
    def make_targets(self, splits: Sequence[Sequence[Row]], width: int, cache: str | None) -> Targets:
        """Compute what the vectors of rows are compared with.

        Args:
            splits: Learned rows, and held-out rows if any.
            width: d of the trained model.
            cache: Folder for vectors; None keeps none.

        Returns:
            The targets of all splits' rows, in order.
        """

    @abstractmethod
    def compute_loss(self, vectors: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Compute the weighted loss of a step.

        Args:
            vectors: v, float32, shape (batch, d).
            targets: t, shape (batch, d); they carry no gradient.
            indices: Shape (batch,); rows with equal indices have the same target.

        Returns:
            A scalar.
        """


def gather_targets(targets: Tensor, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gather the targets of all processes.

    Args:
        targets: Those of this process, shape (batch, d).
        indices: Their indices, shape (batch,).

    Returns:
        All targets, all indices, and the positions of this process's own among them.
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
    """Map vectors to another width by a fixed orthonormal map: cosines stay in a wider space, and nearly so in a narrower one.

    Args:
        vectors: Shape (n, d).
        width: The width to reach.

    Returns:
        Shape (n, width).
    """
    return vectors if vectors.shape[1] == width else vectors @ make_orthonormal_map(vectors.shape[1], width)


def make_orthonormal_map(rows: int, columns: int, seed: int = 0) -> Vectors:
    """Make a fixed map between widths: orthonormal rows when it widens, orthonormal columns when it narrows.

    Args:
        rows: Width of what is mapped.
        columns: Width of the result.
        seed: Seed of the sample.

    Returns:
        Shape (rows, columns).
    """
    sample = np.random.default_rng(seed).normal(size=(max(rows, columns), min(rows, columns)))
    basis = np.linalg.qr(sample)[0].astype(np.float32)
    return basis.T if columns > rows else basis
