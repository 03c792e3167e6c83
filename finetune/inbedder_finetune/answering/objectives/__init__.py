"""What is minimised: one file per objective, with its settings, its targets and its loss.

A step's loss, its terms in the order of their files' names, is::

    L = sum of the TokenObjectives / answer tokens of the step + sum of the VectorObjectives

To add one, add a file whose dataclass extends ``TokenObjective`` or ``VectorObjective`` (``base``): its fields join the section
``objective`` of recipes and ``docs/recipes.md``, and it joins the loss of each recipe that gives it a weight. Nothing lists it.

A vector objective trains v: the mean of the masks' states (masked LMs), the state that predicts the first token (1st-gen), or
the mean of the states that predict the answer (avg-gen), without the instruction's vector where ``subtract`` names a model.
What all answers to a question share then stays with its vector.
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
QUESTION = "question_vector"
"""Key of the instructions' vectors in a batch that has them subtracted."""


@dataclass(frozen=True)
class ObjectiveSettings(*OBJECTIVES):  # type: ignore[misc]
    """What is minimised: the answer's tokens, and what trains the vector (``objectives``)."""


def make_objectives(settings: Section) -> list[Objective]:
    """Make all objectives, active or not, of a recipe's section ``objective``."""
    return [kind(**{field.name: getattr(settings, field.name) for field in fields(kind)}) for kind in OBJECTIVES]


def compute_vector_loss(objectives: Sequence[VectorObjective], vectors: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Compute the sum of vector objectives.

    Args:
        objectives: The active ones.
        vectors: v, float32, shape (batch, d).
        batch: Each objective's targets under its name, their indices under NAME_index, and ``QUESTION`` to subtract, if any.

    Returns:
        A scalar.
    """
    loss = vectors.new_zeros(())
    if QUESTION in batch:
        vectors = vectors - batch[QUESTION].to(vectors.dtype)
    for objective in objectives:
        loss = loss + objective.compute_loss(vectors, batch[objective.name], batch[f"{objective.name}_index"])
    return loss
