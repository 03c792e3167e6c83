"""Masked LMs that read text and question apart: the masks alone attend to both, in every layer.

A text's states then do not depend on the question, nor a question's on the text (late interaction, as in PreTTR and ColBERT, here
with the masks of the InBedder paper as what interacts), so that a text is read once for all its questions, a question once for
all texts, and each pair costs its masks alone. A model must be trained so (``late_interaction`` of a recipe).

The text is read as its base reads it; question and masks are of the second token type and numbered from 0. A batch is one row
without padding (``packed_row``), and ``attend`` puts together which tokens see each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from inbedder.backbones.base import Sampling
from inbedder.backbones.masked import MaskedBackbone, passing_only
from inbedder.backbones.packed_row import Group, Parts, pack, parts_of
from inbedder.backbones.transformer import check_layer, pad_id_of
from inbedder.batching import pad
from inbedder.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from inbedder.tokenization import PromptTokens

ATTENTION = "inbedder_late_interaction"
LONG = 200
"""Keys from which on torch's fused attention is faster on a CPU."""


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    groups: Sequence[Group] | None = None,
    back: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention of a packed row; of any other batch, torch's.

    Args:
        module: The layer's attention.
        query: Shape (1, heads, tokens, width), or (batch, ...) of other batches.
        key: The same.
        value: The same.
        attention_mask: Of other batches.
        groups: Who sees whom.
        back: Where in the groups' rows each token stands.
        **options: scaling and dropout.

    Returns:
        Shape (1, tokens, heads, width), and no weights.
    """
    if groups is None or back is None:
        found: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return found
    flat = [states[0].transpose(0, 1) for states in (query, key, value)]
    how = options.get("scaling") or query.shape[-1] ** -0.5, options.get("dropout", 0.0)
    rows = []
    for group in groups:
        q, k, v = (
            states.index_select(0, places.flatten()).view(*places.shape, *states.shape[1:]).transpose(1, 2)
            for states, places in zip(flat, (group.queries, group.keys, group.keys), strict=True)
        )
        states = _attended(q, k, v, group.bias.to(q.dtype), *how)
        rows.append(states.transpose(1, 2).flatten(0, 1))
    return torch.cat(rows).index_select(0, back)[None], None


def _attended(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float, dropout: float) -> Tensor:
    """Attention written out on a CPU, unless rows are long: torch's fused one is slower there, in its backward pass by far."""
    rows, heads, length, width = query.shape
    keys = key.shape[2]
    if query.device.type != "cpu" or (keys > LONG and not torch.is_grad_enabled()):
        return scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scale)
    many = rows * heads
    bias = bias.expand(rows, heads, length, keys).reshape(many, length, keys)
    q, k, v = query.reshape(many, length, width), key.reshape(many, keys, width), value.reshape(many, keys, width)
    scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)
    weights = torch.nn.functional.dropout(scores.softmax(-1, dtype=torch.float32), dropout).to(v.dtype)
    return torch.bmm(weights, v).view(rows, heads, length, width)


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def prepare(model: PreTrainedModel) -> None:
    """Let a model attend as ``attend`` does.

    Args:
        model: BERT as a masked LM.

    Raises:
        ModelError: When it is another kind of model, or has no second token type.
    """
    if model.config.model_type != "bert" or model.config.type_vocab_size < 2:
        raise ModelError(f"late_interaction is for BERT with two token types; {model.config.model_type!r} is none.")
    model.set_attn_implementation(ATTENTION)


class LateInteractionBackbone(MaskedBackbone):
    """A masked LM trained to read text and question apart."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, mask_length: int = 3) -> None:
        """Wrap a loaded model.

        Args:
            model: A masked LM built as BERT is.
            tokenizer: Its tokenizer.
            mask_length: How many masks follow a prompt.

        Raises:
            ModelError: When mask_length is below 1, or the model cannot read so.
        """
        super().__init__(model, tokenizer, mask_length)
        prepare(model)

    def _parts(self, prompts: Sequence[PromptTokens]) -> list[Parts]:
        if any(prompt.instruction[0] < prompt.text[1] for prompt in prompts):
            raise ModelError("This model reads text and instruction apart: choose a template with {input} before {instruction}.")
        masks = self.mask_length
        return [
            parts_of(prompt.ids, prompt.instruction[0], prompt.response, prompt.ids[prompt.response + masks :])
            for prompt in prompts
        ]

    def _inputs(self, prompts: Sequence[PromptTokens]) -> tuple[dict[str, Tensor], Tensor]:
        """A row per prompt, for all but the usual vectors: text, question and masks one behind the other."""
        parts = self._parts(prompts)
        masks = np.full(self.mask_length, self.tokenizer.mask_token_id, dtype=np.int32)
        ids, real = pad([np.concatenate([part.text, part.question, masks]) for part in parts], pad_id_of(self.tokenizer))
        text, end = (
            torch.tensor([[length] for length in lengths])
            for lengths in ([len(part.text) for part in parts], [len(part.text) + len(part.question) for part in parts])
        )
        place = torch.arange(ids.shape[1]).expand_as(ids)
        in_text, is_mask = place < text, real & (place >= end)
        in_question = real & ~in_text & ~is_mask
        same_part = (in_text.unsqueeze(2) & in_text.unsqueeze(1)) | (in_question.unsqueeze(2) & in_question.unsqueeze(1))
        seen = same_part | (~in_text & ~in_question).unsqueeze(2) & real.unsqueeze(1)
        columns = {
            "input_ids": ids,
            "position_ids": torch.where(in_text, place, (place - text).clamp(min=0)) * real,
            "token_type_ids": (real & ~in_text).long(),
            "attention_mask": seen.unsqueeze(1),
        }
        device = self.model.device
        return {name: column.to(device) for name, column in columns.items()}, is_mask.to(device)

    def _kept(self, pooling: str, inputs: dict[str, Tensor], is_mask: Tensor) -> Tensor:
        real = inputs["attention_mask"][:, 0].diagonal(dim1=1, dim2=2)  # padding is seen by nobody
        return super()._kept(pooling, {**inputs, "attention_mask": real}, is_mask)

    @torch.inference_mode()
    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool one batch, each text and each question read once.

        Args:
            prompts: Tokenized prompts, masks included, the text first.
            pooling: "avg-gen", "avg-ppt" or "avg-all".
            layer: 0 .. L, or negative from the end.
            sampling: Not used: nothing is decoded.
            filter_ids: Ids of words that are left out of avg-gen where the head predicts them (section 4.3).

        Returns:
            float32, shape (batch, d).
        """
        if pooling != "avg-gen" or filter_ids or check_layer(layer, self.num_layers) != self.num_layers:
            return super().embed(prompts, pooling, layer, sampling, filter_ids)
        model, mask_id = self.model, int(self.tokenizer.mask_token_id)
        packed = pack(self._parts(prompts), self.mask_length, mask_id, model.device, model.dtype)
        states: Tensor = passing_only(self.body, self._last_mixing, packed.is_mask)(**packed.inputs)[0]
        vectors = torch.empty(len(prompts), states.shape[-1], device=states.device)
        vectors[torch.from_numpy(packed.order).to(states.device)] = (
            states[0].float().view(len(prompts), self.mask_length, -1).mean(1)
        )
        return vectors
