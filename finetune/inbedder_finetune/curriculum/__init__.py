"""Data-CUBE's order of training (Min et al. 2024)."""

from inbedder_finetune.curriculum.row_order import (
    arrange,
    instance_margins,
    loss_mask,
    random_batches,
    task_similarity,
    task_vectors,
    underfitting,
)
from inbedder_finetune.curriculum.task_tours import order_tasks, tour_similarity

__all__ = [
    "arrange",
    "instance_margins",
    "loss_mask",
    "order_tasks",
    "random_batches",
    "task_similarity",
    "task_vectors",
    "tour_similarity",
    "underfitting",
]
