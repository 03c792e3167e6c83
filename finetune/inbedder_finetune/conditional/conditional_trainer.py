"""transformers' trainer with both rows of a pair in one batch, the head's own rate, and correlations after every epoch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from inbedder.conditional.encoder import ConditionalEncoder, collate
from inbedder.conditional.rated_rows import Rated
from inbedder_finetune.conditional.conditional_losses import loss_of, mse, scaled
from inbedder_finetune.conditional.conditional_recipe import ConditionalRecipe
from inbedder_finetune.conditional.rated_pairs import PairSampler, higher_rated
from inbedder_finetune.preflight import uses_bf16
from inbedder_finetune.training_run import training_arguments

logger = logging.getLogger(__name__)


def make_examples(encoder: ConditionalEncoder, rows: Sequence[Rated], recipe: ConditionalRecipe) -> list[dict[str, Any]]:
    """Rows as token ids.

    Args:
        encoder: What reads them.
        rows: n rows.
        recipe: Its encoding.

    Returns:
        n examples: the parts that the encoder reads, the scaled rating, and whether it is the higher one of an ordered pair.
    """
    texts = [[getattr(row, name) for row in rows] for name in ("sentence1", "sentence2", "condition")]
    read, cut = encoder.read(*texts)
    if cut:
        logger.warning("%d of %d pairs are cut to %d tokens.", cut, len(rows), recipe.encoding.max_length)
    low, high = recipe.encoding.scaled
    targets = [scaled(row.label, low, high) for row in rows]
    columns = zip(read, targets, higher_rated(rows), strict=True)
    return [{"parts": parts, "target": target, "higher": higher} for parts, target, higher in columns]


def _give_the_head_its_rate(optimizer: torch.optim.Optimizer, encoder: ConditionalEncoder, rate: float | None) -> None:
    """Move the head's weights to groups of their own."""
    if rate is None:
        return
    head = {id(weight) for name, weight in encoder.named_parameters() if not name.startswith("backbone.")}
    for group in list(optimizer.param_groups):
        moved = [weight for weight in group["params"] if id(weight) in head]
        if moved:
            group["params"] = [weight for weight in group["params"] if id(weight) not in head]
            optimizer.add_param_group({**group, "params": moved, "lr": rate})


def _training_arguments(recipe: ConditionalRecipe, watches: bool) -> Any:
    from transformers import TrainingArguments

    return training_arguments(
        TrainingArguments,
        recipe.training,
        bf16=uses_bf16(recipe.training.bf16),
        max_grad_norm=recipe.training.max_grad_norm,
        eval_strategy="epoch" if watches else "no",
        remove_unused_columns=False,
        report_to=recipe.training.report_to,
    )


def make_trainer(
    encoder: ConditionalEncoder, learned: Sequence[Rated], watched: Sequence[Rated], recipe: ConditionalRecipe
) -> Any:
    """The trainer of a run.

    Args:
        encoder: What learns.
        learned: Rows; the order of training puts both rows of a pair side by side.
        watched: Rows that each epoch is measured on; may be none.
        recipe: Objective and schedule.

    Returns:
        transformers' trainer.
    """
    from transformers import Trainer

    def batch(examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        ids, mask = collate([example["parts"] for example in examples], encoder.tokenizer)
        columns = {name: torch.tensor([example[name] for example in examples]) for name in ("target", "higher")}
        return {"input_ids": ids, "attention_mask": mask, **columns}

    class ConditionalTrainer(Trainer):
        """transformers' trainer with the loss, the order and the measure of this package."""

        def _get_train_sampler(self, train_dataset: Any = None) -> PairSampler:
            self.order = PairSampler(learned, recipe.training.seed)
            return self.order

        def get_batch_samples(self, *args: Any, **options: Any) -> Any:
            """The batches of a step, in the order of their epoch (a resumed run's too)."""
            self.order.set_epoch(int((self.state.epoch or 0) + 1e-6))
            return super().get_batch_samples(*args, **options)

        def create_optimizer(self, *args: Any, **options: Any) -> Any:
            """The optimizer, with the head's own rate."""
            optimizer = super().create_optimizer(*args, **options)
            _give_the_head_its_rate(optimizer, encoder, recipe.training.head_learning_rate)
            return optimizer

        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_options: Any) -> Any:
            """Loss of one batch."""
            scores = model(inputs["input_ids"], inputs["attention_mask"])
            loss = loss_of(scores, inputs["target"], inputs["higher"], recipe.objective)
            return (loss, {}) if return_outputs else loss

        def evaluate(self, *args: Any, **options: Any) -> Any:
            """Measure without drawing on the random numbers of training, so that a resumed run has the same ones."""
            with torch.random.fork_rng(devices=[]):
                return super().evaluate(*args, **options)

        def prediction_step(self, model: Any, inputs: Any, *_args: Any, **_options: Any) -> Any:
            """Squared error, scores and scaled ratings of one batch."""
            inputs = self._prepare_inputs(inputs)
            with torch.no_grad(), self.compute_loss_context_manager():
                scores = model(inputs["input_ids"], inputs["attention_mask"])
            return mse(scores, inputs["target"]), scores, inputs["target"]

    return ConditionalTrainer(
        model=encoder,
        args=_training_arguments(recipe, bool(watched)),
        train_dataset=make_examples(encoder, learned, recipe),
        eval_dataset=make_examples(encoder, watched, recipe) if watched else None,
        data_collator=batch,
        compute_metrics=lambda found: correlations(found.predictions, found.label_ids),
    )


def correlations(scores: Any, ratings: Any) -> dict[str, float]:
    """How scores follow ratings, times 100 (paper, section 5).

    Args:
        scores: n numbers.
        ratings: n numbers.

    Returns:
        spearman and pearson; 0 where one side is constant.
    """
    import numpy as np
    from scipy.stats import pearsonr, spearmanr

    if np.ptp(scores) == 0 or np.ptp(ratings) == 0:
        return {"spearman": 0.0, "pearson": 0.0}
    found = {"spearman": spearmanr(scores, ratings), "pearson": pearsonr(scores, ratings)}
    return {name: round(100 * float(result.statistic), 2) for name, result in found.items()}
