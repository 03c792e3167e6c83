"""Distillation of a teacher T, a model that follows instructions.

Its loss, times ``teacher_weight``, is::

    T = mean_i - sum_j softmax_j(cos(t_i, t_j)/t) log softmax_j(cos(v_i, t_j)/t),   t_i = T(I_i, x_i)      "similarities"
    T = mean_i 1 - cos(v_i, t_i)                                                                           "cosine"

j runs over all rows of the step, of all processes and micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from inbedder.embedder import InBedder
from inbedder.errors import RecipeError
from inbedder_finetune.answering.objectives.base import Targets, VectorObjective, fit_width, gather_targets
from inbedder_finetune.recipe import NonNegativeFloat
from inbedder_finetune.sources import NO_INSTRUCTION, Source

if TYPE_CHECKING:
    from inbedder_finetune.answering.training_row import Row


@dataclass(frozen=True)
class Distillation(VectorObjective):
    """Cross-entropy to a teacher's similarities, or cosine distance to its vectors."""

    teacher: str | tuple[str, ...] | None = None
    """Teacher of the distillation: a model, as ``InBedder`` loads it. The vectors of several teachers are summed."""
    teacher_weight: NonNegativeFloat = 1.0
    """Weight of the distillation."""
    teacher_loss: Literal["similarities", "cosine"] = "similarities"
    """Loss of the distillation: "similarities" (between the teacher's vectors of a step) or "cosine" (to the teacher's vector of
    the row, for a model that already shares the teacher's space)."""

    @property
    def is_active(self) -> bool:
        """Whether the objective has a teacher and a weight."""
        return bool(self.teacher) and self.teacher_weight > 0

    def check_sources(self, sources: Sequence[Source]) -> None:
        """Refuse rows without a teacher when the loss compares similarities."""
        if self.teacher_loss != "cosine" and any(source.teacher_instruction == "" for source in sources):
            raise RecipeError('teacher_instruction: "" gives rows no teacher, which needs objective.teacher_loss: cosine.')

    def make_targets(self, splits: Sequence[Sequence[Row]], width: int, cache: str | None) -> Targets:
        """Embed rows with the teachers (``VectorObjective.make_targets``)."""
        teachers = (self.teacher,) if isinstance(self.teacher, str) else self.teacher or ()
        vectors = torch.cat([embed_with_teachers(teachers, rows, width, cache) for rows in splits])
        return Targets(vectors, range(len(vectors)))

    def compute_loss(self, vectors: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Compute T of the module's equations, times its weight (``VectorObjective.compute_loss``)."""
        if self.teacher_loss == "cosine":
            return self.teacher_weight * (1 - F.cosine_similarity(vectors.float(), targets.float(), dim=-1)).mean()
        all_targets, _, _ = gather_targets(targets, indices)
        student, teacher, unit = (F.normalize(rows.float(), dim=-1) for rows in (vectors, targets, all_targets))
        probabilities = (teacher @ unit.T / self.temperature).softmax(-1)
        return self.teacher_weight * F.cross_entropy(student @ unit.T / self.temperature, probabilities)


def embed_with_teachers(teachers: Sequence[str], rows: Sequence[Row], width: int, cache: str | None = None) -> Tensor:
    """Sum the unit vectors of several teachers.

    Args:
        teachers: Models, as ``InBedder`` loads them.
        rows: Texts, their instructions, and the instructions of the teachers.
        width: d of the trained model.
        cache: Folder of the teachers' cached vectors; None caches nothing.

    Returns:
        float16, shape (rows, width); zeros for rows without a teacher.
    """
    total = np.zeros((len(rows), width), dtype=np.float32)
    plain = [number for number, row in enumerate(rows) if row.teacher_instruction == NO_INSTRUCTION]
    instructed = [number for number, row in enumerate(rows) if row.teacher_instruction not in ("", NO_INSTRUCTION)]
    questions = [rows[number].teacher_instruction or rows[number].instruction for number in instructed]
    for teacher in teachers:
        model = InBedder(teacher, cache=cache)
        for numbers, instructions in ((instructed, questions), (plain, None)):
            if numbers:
                vectors = model.encode([rows[number].text for number in numbers], instructions, normalize_embeddings=True)
                total[numbers] += fit_width(np.asarray(vectors), width)
    return torch.from_numpy(total).half()
