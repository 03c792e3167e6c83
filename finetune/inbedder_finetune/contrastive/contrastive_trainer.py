"""sentence-transformers' trainer with batches of one task, in the order of their epoch."""

from __future__ import annotations

from typing import Any

from inbedder_finetune.contrastive.contrastive_losses import make_loss
from inbedder_finetune.contrastive.contrastive_recipe import ContrastiveRecipe
from inbedder_finetune.contrastive.instructed import InstructedCollator
from inbedder_finetune.contrastive.task_batches import TaskBatchSampler
from inbedder_finetune.preflight import uses_bf16
from inbedder_finetune.training_run import training_arguments


def _training_arguments(recipe: ContrastiveRecipe, watches: bool) -> Any:
    from sentence_transformers.sentence_transformer.training_args import SentenceTransformerTrainingArguments

    training = recipe.training
    return training_arguments(
        SentenceTransformerTrainingArguments,
        training,
        bf16=uses_bf16(training.bf16),
        gradient_checkpointing=training.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if training.gradient_checkpointing else None,
        eval_strategy="steps" if watches else "no",
        eval_steps=training.eval_steps if watches else None,
    )


def make_trainer(model: Any, learned: TaskBatchSampler, watched: TaskBatchSampler | None, recipe: ContrastiveRecipe) -> Any:
    """The trainer of a run.

    Args:
        model: A SentenceTransformer.
        learned: Batches of the learned rows.
        watched: Batches of the held-out rows, or None.
        recipe: Loss and schedule.

    Returns:
        sentence-transformers' trainer.
    """
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer

    class ContrastiveTrainer(SentenceTransformerTrainer):  # type: ignore[misc]
        """sentence-transformers' trainer with batches of one task, and nothing pickled beside the weights."""

        def get_batch_sampler(self, dataset: Any, *_args: Any, **_settings: Any) -> TaskBatchSampler | None:
            """The order of learned or held-out rows."""
            return watched if dataset is self.eval_dataset else learned

        def get_batch_samples(self, *args: Any, **settings: Any) -> Any:
            """The batches of a step, in the epoch's order; accelerate does not pass the epoch on to a resumed run."""
            learned.set_epoch(int((self.state.epoch or 0) + 1e-6))
            return super().get_batch_samples(*args, **settings)

        def add_model_card_callback(self, default_args_dict: Any) -> None:
            """No card of sentence-transformers: this package writes its own."""

        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            self.model.save_pretrained(output_dir or self.args.output_dir, create_model_card=False)

    def table(order: TaskBatchSampler) -> Any:
        rows = order.pairs
        columns: dict[str, list[Any]] = {
            "query": [list(row.query) for row in rows],
            "positive": [list(row.positive) for row in rows],
        }
        if not all(row.is_anchor for row in rows):
            columns["anchor"] = [row.is_anchor for row in rows]
        return Dataset.from_dict({**columns, "negatives": [[list(negative) for negative in row.negatives] for row in rows]})

    return ContrastiveTrainer(
        model=model,
        args=_training_arguments(recipe, watched is not None),
        train_dataset=table(learned),
        eval_dataset=table(watched) if watched else None,
        loss=make_loss(model, recipe.temperature, recipe.training.micro_batch),
        data_collator=InstructedCollator(model.tokenizer, recipe.max_length),
    )
