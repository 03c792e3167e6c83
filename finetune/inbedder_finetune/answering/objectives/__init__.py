"""Training objectives: one file each, with settings, targets and loss.

The loss of a step is::

    L = sum of the TokenObjectives / answer tokens of the step + sum of the VectorObjectives

To add an objective, add a file with a dataclass that extends ``TokenObjective`` or ``VectorObjective`` (``base``). Its fields
join the section ``objective`` of recipes and ``docs/recipes.md``, and it joins the loss of each recipe that gives it a weight.

Vector objectives train v: the mean of the states of the masks (masked LMs), the state that predicts the first token (1st-gen),
the mean of the states that predict the answer (avg-gen), or those of soft tokens (soft-gen, ``refinement_loss``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from torch import Tensor

from inbedder_finetune.answering.objectives.base import Objective, TokenObjective, VectorObjective
from inbedder_finetune.recipe import Section

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
OBJECTIVES: tuple[type[Any], ...] = (*VectorObjective.__subclasses__(), *TokenObjective.__subclasses__())


@dataclass(frozen=True)
class ObjectiveSettings(*OBJECTIVES):  # type: ignore[misc]
    """Objectives over the answer's tokens and over the vector (``objectives``)."""


def make_objectives(settings: Section) -> list[Objective]:
    """Make all objectives, active or not, from a recipe's section ``objective``."""
    return [kind(**{field.name: getattr(settings, field.name) for field in fields(kind)}) for kind in OBJECTIVES]


def compute_vector_loss(objectives: Sequence[VectorObjective], vectors: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Compute the sum of vector objectives.

    Args:
        objectives: The active objectives.
        vectors: v, float32, shape (batch, d).
        batch: The targets of each objective under its name, and their indices under NAME_index.

    Returns:
        A scalar.
    """
    loss = vectors.new_zeros(())
    for objective in objectives:
        loss = loss + objective.compute_loss(vectors, batch[objective.name], batch[f"{objective.name}_index"])
    return loss
