"""sentence-transformers' trainer with batches in a reproducible order."""

from __future__ import annotations

from typing import Any

from inbedder_finetune.checked_trainer import CheckedTrainer
from inbedder_finetune.contrastive.contrastive_losses import make_loss
from inbedder_finetune.contrastive.contrastive_recipe import ContrastiveRecipe
from inbedder_finetune.contrastive.instructed_texts import InstructedCollator
from inbedder_finetune.contrastive.pair_batches import PairBatchSampler
from inbedder_finetune.preflight import uses_bf16
from inbedder_finetune.training_run import make_training_arguments


def _make_training_arguments(recipe: ContrastiveRecipe, evaluates: bool) -> Any:
    from sentence_transformers.sentence_transformer.training_args import SentenceTransformerTrainingArguments

    training = recipe.training
    return make_training_arguments(
        SentenceTransformerTrainingArguments,
        training,
        bf16=uses_bf16(training.bf16),
        save_total_limit=training.keep_checkpoints,
        gradient_checkpointing=training.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if training.gradient_checkpointing else None,
        eval_strategy="steps" if evaluates else "no",
        eval_steps=training.eval_steps if evaluates else None,
    )


def make_trainer(
    model: Any, train_batches: PairBatchSampler, held_out_batches: PairBatchSampler | None, recipe: ContrastiveRecipe
) -> Any:
    """Make the trainer of a run.

    Args:
        model: A SentenceTransformer.
        train_batches: Batches of the training rows.
        held_out_batches: Batches of the held-out rows, or None.
        recipe: Loss and schedule.

    Returns:
        sentence-transformers' trainer.
    """
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer

    class ContrastiveTrainer(CheckedTrainer, SentenceTransformerTrainer):
        """sentence-transformers' trainer with reproducible batches, which saves no pickles."""

        def get_batch_sampler(self, dataset: Any, *_args: Any, **_settings: Any) -> PairBatchSampler | None:
            """Get the batches of the training rows or the held-out rows."""
            return held_out_batches if dataset is self.eval_dataset else train_batches

        def get_batch_samples(self, *args: Any, **settings: Any) -> Any:
            """Get the batches of a step in the order of their epoch, which accelerate does not pass to a resumed run."""
            train_batches.set_epoch(int((self.state.epoch or 0) + 1e-6))
            return super().get_batch_samples(*args, **settings)

        def add_model_card_callback(self, default_args_dict: Any) -> None:
            """Add no callback: this package writes its own model card."""

        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            self.model.save_pretrained(output_dir or self.args.output_dir, create_model_card=False)

    def make_dataset(batches: PairBatchSampler) -> Any:
        rows = batches.pairs
        return Dataset.from_dict(
            {
                "query": [list(row.query) for row in rows],
                "positive": [list(row.positive) for row in rows],
                "negatives": [[list(negative) for negative in row.negatives] for row in rows],
                "anchor": [row.is_anchor for row in rows],
            }
        )

    return ContrastiveTrainer(
        model=model,
        args=_make_training_arguments(recipe, held_out_batches is not None),
        train_dataset=make_dataset(train_batches),
        eval_dataset=make_dataset(held_out_batches) if held_out_batches else None,
        loss=make_loss(model, recipe.temperature, recipe.denominator, recipe.training.micro_batch),
        data_collator=InstructedCollator(model.tokenizer, recipe.max_length),
    )
