"""transformers' trainer with the losses and the order of answering.

The loss of a step is the mean over its answer tokens plus InfoNCE over all of its rows. Rows that do not fit into memory at once
are read in parts of ``training.micro_batch``. Their InfoNCE is that of the whole step by GradCache (Gao et al. 2021): a first
pass without gradients gives the vectors of all parts, the loss gives the gradient of each vector, and a second pass, part by
part, carries it into the weights. Parts change memory and speed, not the loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments

from inbedder_finetune.answering.batch_order import GroupedSampler
from inbedder_finetune.answering.examples import IGNORED, Collator, Example
from inbedder_finetune.answering.forward_pass import ForwardOutput, pool_states
from inbedder_finetune.answering.objectives import QUESTION, compute_vector_loss
from inbedder_finetune.answering.plan import Plan
from inbedder_finetune.answering.trainable_families import TrainingFamily
from inbedder_finetune.answering.training_data import TrainingData
from inbedder_finetune.training_run import training_arguments

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Part = dict[str, Tensor]
RandomStates = tuple[Tensor, list[Tensor]]


class PartsCollator:
    """A step's rows in parts of at most ``micro_batch``."""

    def __init__(self, collator: Collator, micro_batch: int) -> None:
        """Take the collator of a part.

        Args:
            collator: Makes one part.
            micro_batch: Maximum number of rows of a part.
        """
        self.collator, self.micro_batch = collator, micro_batch

    def __call__(self, examples: Sequence[Example]) -> dict[str, list[Part]]:
        """The parts, in order."""
        starts = range(0, len(examples), self.micro_batch)
        return {"parts": [self.collator(examples[start : start + self.micro_batch]) for start in starts]}


class AnsweringTrainer(Trainer):
    """transformers' trainer with the loss and the order of this package."""

    def __init__(
        self, model: nn.Module, tokenizer: PreTrainedTokenizerBase, family: TrainingFamily, data: TrainingData, plan: Plan
    ) -> None:
        """Set up a run.

        Args:
            model: With its adapters, if any.
            tokenizer: Its own.
            family: How it is read.
            data: Learned and held-out examples, and their collator.
            plan: Objectives, schedule, and rows at once.
        """
        self.family, self.schedule, self.pooling = family, plan.schedule, plan.vector.pooling
        self.token_objectives, self.vector_objectives = plan.token_objectives, plan.vector_objectives
        super().__init__(
            model=model,
            args=_training_arguments(plan, watches=data.held_out is not None),
            train_dataset=data.learned,
            eval_dataset=data.held_out,
            data_collator=PartsCollator(data.collator, plan.micro_batch),
            processing_class=tokenizer,
        )
        self.model_accepts_loss_kwargs = True

    def _get_train_sampler(self, train_dataset: Any = None) -> GroupedSampler:
        lengths, texts, questions = (self.train_dataset[name][:].tolist() for name in ("length", "text", "question"))
        batch_size, group, seed = self.schedule.batch_size, self.schedule.group, self.schedule.seed
        share_texts = self.schedule.share_texts
        self.order = GroupedSampler(lengths, texts, questions, batch_size, group, seed, share_texts=share_texts)
        return self.order

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        """The rows of one step, and the number of answer tokens in it over all processes."""
        self.order.set_epoch(int((self.state.epoch or 0) + 1e-6))  # accelerate does not reach it behind a resume's skip
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        labels = [part["labels"] for batch in batches for part in batch["parts"]]
        count = torch.tensor(sum(int((label != IGNORED).sum()) for label in labels), device=device)
        return batches, self.accelerator.gather(count).sum()

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Compute the gradients of one step, part by part.

        Args:
            model: As the trainer wraps it.
            inputs: The step's parts.
            num_items_in_batch: Answer tokens of the step over all processes.

        Returns:
            The loss, such that its mean over processes is the step's.
        """
        model.train()
        parts: list[Part] = self._prepare_inputs(inputs)["parts"]
        tokens = num_items_in_batch / self.accelerator.num_processes
        total = torch.zeros((), device=self.args.device)
        gradients: list[Tensor] = []
        states: list[RandomStates] = []
        if len(parts) > 1 and self.vector_objectives:
            total, gradients, states = self._contrast(model, parts)
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            with nullcontext() if last else self.accelerator.no_sync(model):
                with self.compute_loss_context_manager(), _repeated(states[number] if states else None):
                    output = self._read(model, part)
                    vectors = pool_states(output, self.pooling)
                    loss = self._compute_token_loss(output) / tokens
                    if not gradients:
                        loss = loss + compute_vector_loss(self.vector_objectives, vectors, part)
                    total += loss.detach()
                    if gradients:
                        loss = loss + (vectors * gradients[number]).sum()
                self.accelerator.backward(loss)
        return total

    def _contrast(self, model: Any, parts: Sequence[Part]) -> tuple[Tensor, list[Tensor], list[RandomStates]]:
        """Compute the step's vector loss, its gradient in each part's vectors, and the random states of each part's pass."""
        states, vectors = [], []
        with torch.no_grad(), self.compute_loss_context_manager():
            for part in parts:
                states.append(_random_states())
                vectors.append(pool_states(self._read(model, part), self.pooling))
        whole = torch.cat(vectors).requires_grad_()
        names = [
            QUESTION,
            *(name for objective in self.vector_objectives for name in (objective.name, f"{objective.name}_index")),
        ]
        targets = {name: torch.cat([part[name] for part in parts]) for name in names if name in parts[0]}
        loss = compute_vector_loss(self.vector_objectives, whole, targets)
        (gradient,) = torch.autograd.grad(loss, whole)
        return loss.detach(), list(gradient.split([len(vector) for vector in vectors])), states

    def _read(self, model: Any, part: Part) -> ForwardOutput:
        plain = self.accelerator.unwrap_model(model)
        plain = plain.get_base_model() if hasattr(plain, "get_base_model") else plain
        return self.family.read(model, plain, part)

    def _compute_token_loss(self, output: ForwardOutput) -> Tensor:
        return torch.stack([objective.compute_loss(output.logits, output.labels) for objective in self.token_objectives]).sum()

    def prediction_step(self, model: Any, inputs: Any, *_args: Any, **_options: Any) -> Any:
        """Loss of held-out rows; logits are not gathered."""
        losses = []
        with torch.no_grad(), self.compute_loss_context_manager():
            for part in self._prepare_inputs(inputs)["parts"]:
                output = self._read(model, part)
                loss = self._compute_token_loss(output) / max(len(output.labels), 1)
                losses.append(loss + compute_vector_loss(self.vector_objectives, pool_states(output, self.pooling), part))
        return torch.stack(losses).mean(), None, None


def _training_arguments(plan: Plan, *, watches: bool) -> Any:
    schedule = plan.schedule
    return training_arguments(
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
        eval_strategy="steps" if watches else "no",
        eval_steps=schedule.eval_steps if watches else None,
        prediction_loss_only=True,
        remove_unused_columns=False,
        report_to=schedule.report_to,
    )


def _random_states() -> RandomStates:
    """The states that dropout draws from."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


@contextmanager
def _repeated(states: RandomStates | None) -> Iterator[None]:
    """Draw as in a pass before."""
    if states is not None:
        torch.set_rng_state(states[0])
        if states[1]:
            torch.cuda.set_rng_state_all(states[1])
    yield
