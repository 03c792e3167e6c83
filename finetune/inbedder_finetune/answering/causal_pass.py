"""Forward passes of causal LMs with soft tokens, or with adapters of the question; all others take ``forward_causal``.

Soft tokens follow the prompt: they read its keys and values, not those of the answer, which the same pass computes for the loss
of its tokens.

With adapters of the question (``inbedder.backbones.question_adapter``) the base reads each distinct text of a batch once, without
gradients and dropout. Question and answer follow with the adapters on, and attend to the base's keys and values.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from inbedder.backbones.kv_cache import find_question
from inbedder.backbones.soft_tokens import get_called_body, run_soft_tokens
from inbedder.prompting.batching import pad
from inbedder_finetune.answering.examples import IGNORE_INDEX
from inbedder_finetune.answering.forward_pass import ForwardOutput, collect_last_states

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class CausalPass:
    """A forward pass of a causal LM, called like ``forward_causal``."""

    soft_tokens: int = 0
    """Number of soft tokens after each prompt."""
    question_adapter: bool = False
    """Whether the base reads the text."""

    def __call__(self, model: Any, base_model: PreTrainedModel, batch: dict[str, Tensor]) -> ForwardOutput:
        """Run a causal LM, with logits at the columns where any row has a label.

        Args:
            model: The model to call, perhaps wrapped.
            base_model: The unwrapped model.
            batch: input_ids, attention_mask, labels (``IGNORE_INDEX`` at the prompt) and split (where instructions begin).

        Returns:
            Logits, labels, states, and the states of the soft tokens if there are any.
        """
        past_key_values, past_mask = None, batch["attention_mask"][:, :0]
        if self.question_adapter:
            past_key_values, past_mask, batch = _read_texts(model, batch)
        next_label = F.pad(batch["labels"][:, 1:], (0, 1), value=IGNORE_INDEX)
        has_label = next_label != IGNORE_INDEX
        columns = has_label.any(0).nonzero().flatten()
        mask = torch.cat([past_mask, batch["attention_mask"]], 1)
        takes_positions = "position_ids" in inspect.signature(get_called_body(base_model).forward).parameters
        inputs = {"input_ids": batch["input_ids"], "attention_mask": mask, "logits_to_keep": columns}
        if takes_positions:
            inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)[:, past_mask.shape[1] :]
        with collect_last_states(get_called_body(base_model)) as states:
            output = model(**inputs, past_key_values=past_key_values, use_cache=True)
            logits, owner = output.logits[has_label[:, columns]], has_label.nonzero()[:, 0]
            if self.soft_tokens:
                counts = owner.bincount()
                is_prompt = has_label.cumsum(1) - has_label.long() == 0
                prompt_mask = torch.cat([past_mask, batch["attention_mask"] * is_prompt], 1)
                first_logits = logits[counts.cumsum(0) - counts]
                prompts = (output.past_key_values, prompt_mask)
                run_soft_tokens(model, base_model, first_logits, *prompts, self.soft_tokens, takes_positions=takes_positions)
        soft_states = torch.cat(states[1:], 1) if self.soft_tokens else None
        return ForwardOutput(logits, next_label[has_label], states[0][has_label], owner, soft_states)


def _read_texts(model: Any, batch: dict[str, Tensor]) -> tuple[Any, Tensor, dict[str, Tensor]]:
    """Read each distinct text of a batch with the base.

    Args:
        model: peft's model, perhaps wrapped.
        batch: A batch of ``CausalPass``.

    Returns:
        The keys and values of each row's text, their attention mask, and the batch without the texts, left-padded.
    """
    device, is_token = batch["input_ids"].device, batch["attention_mask"].bool().cpu().numpy()
    ids, labels = (batch[name].cpu().numpy().astype(np.int32) for name in ("input_ids", "labels"))
    rows = [row[keep] for row, keep in zip(ids, is_token, strict=True)]
    row_labels = [row[keep] for row, keep in zip(labels, is_token, strict=True)]
    prompt_lengths = [int((row == IGNORE_INDEX).sum()) for row in row_labels]
    splits = batch["split"].tolist() if "split" in batch else [length // 2 for length in prompt_lengths]
    starts = [find_question(split, length) for split, length in zip(splits, prompt_lengths, strict=True)]
    texts = [row[:start] for row, start in zip(rows, starts, strict=True)]
    following_ids, following_mask = pad([row[start:] for row, start in zip(rows, starts, strict=True)], 0, "left")
    following_labels, _ = pad([row[start:] for row, start in zip(row_labels, starts, strict=True)], IGNORE_INDEX, "left")
    following = {"input_ids": following_ids, "attention_mask": following_mask.long(), "labels": following_labels}
    following = {name: tensor.to(device) for name, tensor in following.items()}
    numbers: dict[bytes, int] = {}
    indices = torch.tensor([numbers.setdefault(text.tobytes(), len(numbers)) for text in texts], device=device)
    text_ids, text_mask = pad([np.frombuffer(text, dtype=np.int32) for text in numbers], 0, "left")
    text_ids, text_mask = text_ids.to(device), text_mask.long().to(device)
    if not text_ids.shape[1]:
        return None, text_mask[indices], following
    past_key_values = _run_base(model, text_ids, text_mask)
    past_key_values.batch_select_indices(indices)
    return past_key_values, text_mask[indices], following


def _run_base(model: Any, ids: Tensor, mask: Tensor) -> Any:
    """Compute the base's keys and values of left-padded texts."""
    peft_model = getattr(model, "module", model)
    base_model = peft_model.get_base_model()
    readable_mask = F.pad(mask[:, :-1], (0, 1), value=1)  # an empty text reads its padding: a row without any position is NaN
    last = torch.tensor([ids.shape[1] - 1], device=ids.device)  # a slice, for 1, is a view, which torch multiplies row by row
    inputs = {"input_ids": ids, "attention_mask": readable_mask, "logits_to_keep": last}
    if "position_ids" in inspect.signature(get_called_body(base_model).forward).parameters:
        inputs["position_ids"] = (readable_mask.cumsum(1) - 1).clamp(min=0)
    was_training = peft_model.training
    peft_model.eval()
    with torch.no_grad(), peft_model.disable_adapter():
        past_key_values = model(**inputs, use_cache=True).past_key_values
    peft_model.train(was_training)
    return past_key_values
