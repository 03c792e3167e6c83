"""transformers' trainer with the losses and the row order of answering.

The loss of a step is the mean over its answer tokens plus InfoNCE over all of its rows. A step is split into micro-batches of
``training.micro_batch`` rows. GradCache (Gao et al. 2021) computes the InfoNCE of the full step: a first pass without gradients
computes the vectors of all micro-batches, the loss gives the gradient of each vector, and a second pass propagates it to the
weights, one micro-batch at a time. The size of micro-batches affects memory and speed, not the loss.

With ``token_mean: micro-batch`` the loss over answer tokens is the mean of the means of the micro-batches, so their size matters.
The InBedder authors' loss is such a mean, by the transformers of their time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import TrainingArguments

from inbedder_finetune.answering.batch_order import GroupedSampler
from inbedder_finetune.answering.examples import IGNORE_INDEX, Collator, Example
from inbedder_finetune.answering.forward_pass import ForwardOutput, pool_states
from inbedder_finetune.answering.plan import Plan
from inbedder_finetune.answering.refinement_loss import compute_refinement_loss
from inbedder_finetune.answering.trainable_families import TrainingFamily
from inbedder_finetune.answering.training_data import TrainingData
from inbedder_finetune.checked_trainer import CheckedTrainer
from inbedder_finetune.training_run import make_training_arguments

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MicroBatch = dict[str, Tensor]
RandomStates = tuple[Tensor, list[Tensor]]


class MicroBatchCollator:
    """Collator that splits a step into micro-batches."""

    def __init__(self, collator: Collator, micro_batch: int) -> None:
        """Set the collator and the size of micro-batches.

        Args:
            collator: Collator of one micro-batch.
            micro_batch: Maximum number of rows of a micro-batch.
        """
        self.collator, self.micro_batch = collator, micro_batch

    def __call__(self, examples: Sequence[Example]) -> dict[str, list[MicroBatch]]:
        """Collate the examples of a step into micro-batches, in order."""
        starts = range(0, len(examples), self.micro_batch)
        return {"micro_batches": [self.collator(examples[start : start + self.micro_batch]) for start in starts]}


class AnsweringTrainer(CheckedTrainer):
    """transformers' trainer with the losses and the row order of answering."""

    def __init__(
        self, model: nn.Module, tokenizer: PreTrainedTokenizerBase, family: TrainingFamily, data: TrainingData, plan: Plan
    ) -> None:
        """Set up a run.

        Args:
            model: The model, with its adapters if any.
            tokenizer: The model's tokenizer.
            family: The family of the model.
            data: Training and held-out examples, and their collator.
            plan: Objectives, schedule and size of micro-batches.
        """
        self.family, self.schedule, self.pooling = family, plan.schedule, plan.vector.pooling
        self.is_mean_of_means = plan.schedule.token_mean == "micro-batch"
        self.token_objectives, self.vector_objectives = plan.token_objectives, plan.vector_objectives
        super().__init__(
            model=model,
            args=_make_training_arguments(plan, evaluates=data.held_out is not None),
            train_dataset=data.train,
            eval_dataset=data.held_out,
            data_collator=MicroBatchCollator(data.collator, plan.micro_batch),
            processing_class=tokenizer,
        )
        self.model_accepts_loss_kwargs = True

    def _get_train_sampler(self, train_dataset: Any = None) -> GroupedSampler:
        lengths, texts, questions = (self.train_dataset[name][:].tolist() for name in ("length", "text", "question"))
        schedule = self.schedule
        self.order = GroupedSampler(
            lengths,
            texts,
            questions,
            schedule.batch_size,
            schedule.group,
            schedule.seed,
            group_by_length=schedule.group_by_length,
            by_text=schedule.group_by == "text",
        )
        return self.order

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        """Get the rows of one step, and the number of its answer tokens over all processes."""
        self.order.set_epoch(int((self.state.epoch or 0) + 1e-6))  # accelerate does not pass the epoch to a resumed run
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        labels = [micro_batch["labels"] for batch in batches for micro_batch in batch["micro_batches"]]
        count = torch.tensor(sum(int((label != IGNORE_INDEX).sum()) for label in labels), device=device)
        return batches, self.accelerator.gather(count).sum()

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Compute the gradients of one step, one micro-batch at a time.

        Args:
            model: The model as the trainer wraps it.
            inputs: The micro-batches of the step.
            num_items_in_batch: Number of answer tokens of the step over all processes.

        Returns:
            The loss, scaled so that its mean over processes is the loss of the step.
        """
        model.train()
        micro_batches: list[MicroBatch] = self._prepare_inputs(inputs)["micro_batches"]
        tokens = num_items_in_batch / self.accelerator.num_processes
        total = torch.zeros((), device=self.args.device)
        gradients: list[Tensor] = []
        states: list[RandomStates] = []
        if len(micro_batches) > 1 and self.vector_objectives:
            total, gradients, states = self._compute_vector_gradients(model, micro_batches)
        for number, micro_batch in enumerate(micro_batches):
            is_last = number == len(micro_batches) - 1
            with nullcontext() if is_last else self.accelerator.no_sync(model):
                with self.compute_loss_context_manager(), _restore_random_states(states[number] if states else None):
                    output = self._forward(model, micro_batch)
                    vectors = pool_states(output, self.pooling)
                    loss = self._compute_token_loss(output)
                    loss = loss / (len(micro_batches) * len(output.labels) if self.is_mean_of_means else tokens)
                    if not gradients:
                        loss = loss + compute_refinement_loss(self.vector_objectives, vectors, micro_batch)
                    total += loss.detach()
                    if gradients:
                        loss = loss + (vectors * gradients[number]).sum()
                self.accelerator.backward(loss)
        return self.check_step(total)

    def _compute_vector_gradients(
        self, model: Any, micro_batches: Sequence[MicroBatch]
    ) -> tuple[Tensor, list[Tensor], list[RandomStates]]:
        """Compute the vector loss of a step; returns it with each micro-batch's gradient and random states."""
        states, vectors = [], []
        with torch.no_grad(), self.compute_loss_context_manager():
            for micro_batch in micro_batches:
                states.append(_get_random_states())
                vectors.append(pool_states(self._forward(model, micro_batch), self.pooling))
        step_vectors = torch.cat(vectors).requires_grad_()
        names = [name for objective in self.vector_objectives for name in (objective.name, f"{objective.name}_index")]
        targets = {name: torch.cat([micro_batch[name] for micro_batch in micro_batches]) for name in names}
        loss = compute_refinement_loss(self.vector_objectives, step_vectors, targets)
        (gradient,) = torch.autograd.grad(loss, step_vectors)
        return loss.detach(), list(gradient.split([len(vector) for vector in vectors])), states

    def _forward(self, model: Any, micro_batch: MicroBatch) -> ForwardOutput:
        base_model = self.accelerator.unwrap_model(model)
        base_model = base_model.get_base_model() if hasattr(base_model, "get_base_model") else base_model
        return self.family.forward(model, base_model, micro_batch)

    def _compute_token_loss(self, output: ForwardOutput) -> Tensor:
        return torch.stack([objective.compute_loss(output.logits, output.labels) for objective in self.token_objectives]).sum()

    def prediction_step(self, model: Any, inputs: Any, *_args: Any, **_options: Any) -> Any:
        """Compute the loss of held-out rows without gathering logits."""
        losses = []
        with torch.no_grad(), self.compute_loss_context_manager():
            for micro_batch in self._prepare_inputs(inputs)["micro_batches"]:
                output = self._forward(model, micro_batch)
                loss = self._compute_token_loss(output) / max(len(output.labels), 1)
                vectors = pool_states(output, self.pooling)
                losses.append(loss + compute_refinement_loss(self.vector_objectives, vectors, micro_batch))
        return torch.stack(losses).mean(), None, None


def _make_training_arguments(plan: Plan, *, evaluates: bool) -> Any:
    schedule = plan.schedule
    return make_training_arguments(
        TrainingArguments,
        schedule,
        bf16=plan.bf16,
        per_device_train_batch_size=plan.rows_per_process,
        per_device_eval_batch_size=plan.micro_batch,
        gradient_checkpointing=schedule.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if schedule.gradient_checkpointing else None,
        ddp_backend="gloo" if plan.processes > 1 and not torch.cuda.is_available() else None,
        fsdp=schedule.fsdp or None,
        fsdp_config={"version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"} if schedule.fsdp else None,
        eval_strategy="steps" if evaluates else "no",
        eval_steps=schedule.eval_steps if evaluates else None,
        prediction_loss_only=True,
        remove_unused_columns=False,
    )


def _get_random_states() -> RandomStates:
    """Get the random states that dropout depends on."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


@contextmanager
def _restore_random_states(states: RandomStates | None) -> Iterator[None]:
    """Restore the random states of an earlier pass."""
    if states is not None:
        torch.set_rng_state(states[0])
        if states[1]:
            torch.cuda.set_rng_state_all(states[1])
    yield
