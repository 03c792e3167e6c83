"""transformers' trainer with both rows of a pair in one batch, a learning rate for the head, and correlations per epoch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from inbedder.conditional.encoder import ConditionalEncoder, collate
from inbedder.conditional.rated_rows import RatedPair, get_scale
from inbedder_finetune.checked_trainer import CheckedTrainer
from inbedder_finetune.conditional.conditional_losses import compute_batch_loss, compute_mse, scale_rating
from inbedder_finetune.conditional.conditional_recipe import ConditionalRecipe
from inbedder_finetune.conditional.rated_pairs import PairSampler, mark_higher_rated
from inbedder_finetune.preflight import uses_bf16
from inbedder_finetune.training_run import make_training_arguments

logger = logging.getLogger(__name__)


def make_examples(encoder: ConditionalEncoder, rows: Sequence[RatedPair], recipe: ConditionalRecipe) -> list[dict[str, Any]]:
    """Tokenize rated rows.

    Args:
        encoder: The encoder.
        rows: n rows.
        recipe: The recipe with the encoding.

    Returns:
        n examples: the token ids that the encoder reads, the scaled rating, and whether it is the higher one of an ordered pair.
    """
    texts = [[getattr(row, name) for row in rows] for name in ("sentence1", "sentence2", "condition")]
    parts_of_rows, truncated = encoder.read(*texts)
    if truncated:
        logger.warning("%d of %d pairs were truncated to %d tokens.", truncated, len(rows), recipe.encoding.max_length)
    low, high = recipe.encoding.scaled
    targets = [scale_rating(row.label, low, high, get_scale(has_conditions=row.condition != "")) for row in rows]
    columns = zip(parts_of_rows, targets, mark_higher_rated(rows), strict=True)
    return [{"parts": parts, "target": target, "higher": higher} for parts, target, higher in columns]


def _set_head_learning_rate(optimizer: torch.optim.Optimizer, encoder: ConditionalEncoder, rate: float | None) -> None:
    """Move the head's weights to parameter groups with their own learning rate."""
    if rate is None:
        return
    head = {id(weight) for name, weight in encoder.named_parameters() if not name.startswith("backbone.")}
    for group in list(optimizer.param_groups):
        head_weights = [weight for weight in group["params"] if id(weight) in head]
        if head_weights:
            group["params"] = [weight for weight in group["params"] if id(weight) not in head]
            optimizer.add_param_group({**group, "params": head_weights, "lr": rate})


def _make_training_arguments(recipe: ConditionalRecipe, evaluates: bool) -> Any:
    from transformers import TrainingArguments

    return make_training_arguments(
        TrainingArguments,
        recipe.training,
        bf16=uses_bf16(recipe.training.bf16),
        max_grad_norm=recipe.training.max_grad_norm,
        eval_strategy="epoch" if evaluates else "no",
        remove_unused_columns=False,
    )


def make_trainer(
    encoder: ConditionalEncoder, train_rows: Sequence[RatedPair], validation_rows: Sequence[RatedPair], recipe: ConditionalRecipe
) -> Any:
    """Make the trainer of a run.

    Args:
        encoder: The encoder to train.
        train_rows: Training rows.
        validation_rows: Rows that are scored after each epoch; may be empty.
        recipe: Objective and schedule.

    Returns:
        transformers' trainer.
    """

    def batch(examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        ids, mask = collate([example["parts"] for example in examples], encoder.tokenizer)
        columns = {name: torch.tensor([example[name] for example in examples]) for name in ("target", "higher")}
        return {"input_ids": ids, "attention_mask": mask, **columns}

    class ConditionalTrainer(CheckedTrainer):
        """transformers' trainer with the loss, the row order and the metrics of conditional similarity."""

        def _get_train_sampler(self, train_dataset: Any = None) -> PairSampler:
            self.order = PairSampler(train_rows, recipe.training.seed, keep_pairs=recipe.objective.loss != "mse")
            return self.order

        def get_batch_samples(self, *args: Any, **options: Any) -> Any:
            """Get the batches of a step in the order of their epoch, also in a resumed run."""
            self.order.set_epoch(int((self.state.epoch or 0) + 1e-6))
            return super().get_batch_samples(*args, **options)

        def create_optimizer(self, *args: Any, **options: Any) -> Any:
            """Create the optimizer, with the head's own learning rate."""
            optimizer = super().create_optimizer(*args, **options)
            _set_head_learning_rate(optimizer, encoder, recipe.training.head_learning_rate)
            return optimizer

        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_options: Any) -> Any:
            """Compute the loss of one batch."""
            scores = model(inputs["input_ids"], inputs["attention_mask"])
            loss = compute_batch_loss(scores, inputs["target"], inputs["higher"], recipe.objective)
            return (loss, {}) if return_outputs else loss

        def evaluate(self, *args: Any, **options: Any) -> Any:
            """Evaluate without changing the random state of training, so that a resumed run stays identical."""
            with torch.random.fork_rng(devices=[]):
                return super().evaluate(*args, **options)

        def prediction_step(self, model: Any, inputs: Any, *_args: Any, **_options: Any) -> Any:
            """Compute squared error, scores and scaled ratings of one batch."""
            inputs = self._prepare_inputs(inputs)
            with torch.no_grad(), self.compute_loss_context_manager():
                scores = model(inputs["input_ids"], inputs["attention_mask"])
            return compute_mse(scores, inputs["target"]), scores, inputs["target"]

    return ConditionalTrainer(
        model=encoder,
        args=_make_training_arguments(recipe, bool(validation_rows)),
        train_dataset=make_examples(encoder, train_rows, recipe),
        eval_dataset=make_examples(encoder, validation_rows, recipe) if validation_rows else None,
        data_collator=batch,
        compute_metrics=lambda prediction: compute_correlations(prediction.predictions, prediction.label_ids),
    )


def compute_correlations(scores: Any, ratings: Any) -> dict[str, float]:
    """Compute the correlations of scores and ratings, times 100 (paper, section 5).

    Args:
        scores: n numbers.
        ratings: n numbers.

    Returns:
        spearman and pearson; 0 when scores or ratings are constant.

    Example:
        >>> compute_correlations([0.1, 0.2, 0.4], [1, 2, 3])
        {'spearman': 100.0, 'pearson': 98.2}
    """
    import numpy as np
    from scipy.stats import pearsonr, spearmanr

    if np.ptp(scores) == 0 or np.ptp(ratings) == 0:
        return {"spearman": 0.0, "pearson": 0.0}
    results = {"spearman": spearmanr(scores, ratings), "pearson": pearsonr(scores, ratings)}
    return {name: round(100 * float(result.statistic), 2) for name, result in results.items()}
