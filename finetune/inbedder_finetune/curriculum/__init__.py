"""Data-CUBE's order of tasks and rows (Min et al. 2024)."""

from inbedder_finetune.curriculum.row_order import (
    arrange,
    compute_margins,
    compute_task_similarity,
    compute_task_vectors,
    make_loss_mask,
    measure_underfitting,
    sample_batches,
)
from inbedder_finetune.curriculum.task_tours import measure_tour, order_tasks

__all__ = [
    "arrange",
    "compute_margins",
    "compute_task_similarity",
    "compute_task_vectors",
    "make_loss_mask",
    "measure_tour",
    "measure_underfitting",
    "order_tasks",
    "sample_batches",
]
