"""Data-CUBE's order of training (Min et al. 2024)."""

from finetune.curriculum.arranging import (
    arrange,
    instance_margins,
    loss_mask,
    random_batches,
    task_similarity,
    task_vectors,
    underfitting,
)
from finetune.curriculum.tours import order_tasks, tour_similarity

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
