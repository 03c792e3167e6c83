"""Distillation of a teacher T, a model that already follows instructions.

Its loss, times ``teacher_weight``, is::

    T = mean_i - sum_j softmax_j(cos(t_i, t_j)/t) log softmax_j(cos(v_i, t_j)/t),   t_i = T(I_i, x_i)      "similarities"
    T = mean_i 1 - cos(v_i, t_i)                                                                           "cosine"

j runs over all rows of the step, those of all processes and micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from inbedder.embedder import InBedder
from inbedder.errors import RecipeError
from inbedder_finetune.answering.objectives.base import Targets, VectorObjective, fit_width, gather_targets
from inbedder_finetune.recipe import AtLeast0
from inbedder_finetune.sources import UNASKED, Source

if TYPE_CHECKING:
    from inbedder_finetune.answering.training_row import Row


@dataclass(frozen=True)
class Distillation(VectorObjective):
    """Cross-entropy to a teacher's similarities, or cosine distance to its vectors."""

    teacher: str | tuple[str, ...] | None = None
    """Distillation: a model, as ``InBedder`` takes it, whose vectors of the same rows are learned; of several, their sum."""
    teacher_weight: AtLeast0 = 1.0
    """Weight of the teacher's vectors."""
    teacher_loss: Literal["similarities", "cosine"] = "similarities"
    """"similarities" (how the teacher's vectors of a step lie to each other) or "cosine" (each row's own vector of the teacher,
    for a model whose vectors already lie in the teacher's space)."""

    @property
    def is_active(self) -> bool:
        """Whether there is a teacher with a weight."""
        return bool(self.teacher) and self.teacher_weight > 0

    def check_sources(self, sources: Sequence[Source]) -> None:
        """Refuse rows without a teacher where similarities are learned."""
        if self.teacher_loss != "cosine" and any(source.taught_as == "" for source in sources):
            raise RecipeError('taught_as: "" leaves rows without a teacher, which only objective.teacher_loss: cosine can do.')

    def make_targets(self, splits: Sequence[Sequence[Row]], width: int, cache: str | None) -> Targets:
        """Embed rows with the teachers; see ``VectorObjective.make_targets``."""
        teachers = (self.teacher,) if isinstance(self.teacher, str) else self.teacher or ()
        vectors = torch.cat([embed_with_teachers(teachers, rows, width, cache) for rows in splits])
        return Targets(vectors, range(len(vectors)))

    def compute_loss(self, vectors: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Compute T of the module's text; see ``VectorObjective.compute_loss``."""
        if self.teacher_loss == "cosine":
            return self.teacher_weight * (1 - F.cosine_similarity(vectors.float(), targets.float(), dim=-1)).mean()
        all_targets, _, _ = gather_targets(targets, indices)
        student, teacher, unit = (F.normalize(rows.float(), dim=-1) for rows in (vectors, targets, all_targets))
        probabilities = (teacher @ unit.T / self.temperature).softmax(-1)
        return self.teacher_weight * F.cross_entropy(student @ unit.T / self.temperature, probabilities)


def embed_with_teachers(teachers: Sequence[str], rows: Sequence[Row], width: int, cache: str | None = None) -> Tensor:
    """Sum teachers' vectors of rows, each of length 1.

    Args:
        teachers: Models, as ``InBedder`` takes them, whose vectors lie in one space once they have one width.
        rows: Texts, their instructions, and the instructions that teachers get instead.
        width: d of the trained model.
        cache: Folder for the teachers' vectors; None keeps none.

    Returns:
        float16, shape (rows, width); zeros for rows without a teacher.
    """
    total = np.zeros((len(rows), width), dtype=np.float32)
    plain = [number for number, row in enumerate(rows) if row.taught_as == UNASKED]
    instructed = [number for number, row in enumerate(rows) if row.taught_as not in ("", UNASKED)]
    questions = [rows[number].taught_as or rows[number].instruction for number in instructed]
    for teacher in teachers:
        model = InBedder(teacher, add_generic=False, cache=None if cache is None else Path(cache).expanduser())
        for numbers, instructions in ((instructed, questions), (plain, None)):
            if numbers:
                vectors = model.encode([rows[number].text for number in numbers], instructions, normalize_embeddings=True)
                total[numbers] += fit_width(np.asarray(vectors), width)
    return torch.from_numpy(total).half()
