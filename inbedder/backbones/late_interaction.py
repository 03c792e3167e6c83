"""Masked LMs that read text and question apart: the masks alone attend to both, in every layer.

A text's states then do not depend on the question, nor a question's on the text (late interaction, as in PreTTR and ColBERT, here
with the masks of the InBedder paper as what interacts), so that a text is read once for all its questions, a question once for
all texts, and each pair costs its masks alone. A model must be trained so (``late_interaction`` of a recipe).

The text is read as its base reads it; question and masks are of the second token type and numbered from 0. A batch is one row
without padding (``packed_row``), whose attention is ``packed_attention``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from inbedder.backbones.masked import MaskedBackbone
from inbedder.backbones.packed_attention import Scratch, attend
from inbedder.backbones.packed_row import Packed, Parts, pack, parts_of
from inbedder.backbones.transformer import blocks_of, check_layer, own_copy, pad_id_of
from inbedder.errors import ModelError
from inbedder.options import Sampling
from inbedder.prompting.batching import pad

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from inbedder.prompting.tokenization import PromptTokens

ATTENTION = "inbedder_late_interaction"
AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def prepare(model: PreTrainedModel) -> None:
    """Let a BERT masked LM attend as ``attend`` does; refuse another kind of model, or one without a second token type."""
    if model.config.model_type != "bert" or model.config.type_vocab_size < 2:
        raise ModelError(f"late_interaction is for BERT with two token types; {model.config.model_type!r} is none.")
    model.set_attn_implementation(ATTENTION)


class _LastBlock(nn.Module):
    """A model's last block for the masks of a packed row alone: nobody reads what the other tokens would become there."""

    def __init__(self, block: Any, packed: Packed, scratch: Scratch | None) -> None:
        super().__init__()
        self.block = block
        self.packed = packed
        self.scratch = scratch

    def forward(self, states: Tensor, *_args: Any, **_options: Any) -> Tensor:
        """From the states of all tokens to those of the masks, shape (1, masks, d)."""
        attention, masks = self.block.attention, states[self.packed.is_mask]
        mixing = attention.self
        width = mixing.attention_head_size
        query, key, value = (
            of(tokens).unflatten(-1, (-1, width)).transpose(0, 1)[None]
            for of, tokens in ((mixing.query, masks), (mixing.key, states[0]), (mixing.value, states[0]))
        )
        mixed, _ = attend(mixing, query, key, value, None, scratch=self.scratch, **self.packed.of_masks, scaling=mixing.scaling)
        found: Tensor = self.block.feed_forward_chunk(attention.output(mixed[0].flatten(1), masks))
        return found[None]


class LateInteractionBackbone(MaskedBackbone):
    """A masked LM trained to read text and question apart."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, mask_length: int = 3) -> None:
        """Wrap a masked LM built as BERT is; refuse one that cannot read text and instruction separately."""
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
        """Pool one batch, as ``Backbone.embed``, each text and each question read once; the prompts' texts must come first."""
        if pooling != "avg-gen" or filter_ids or check_layer(layer, self.num_layers) != self.num_layers:
            return super().embed(prompts, pooling, layer, sampling, filter_ids)
        model, mask_id = self.model, int(self.tokenizer.mask_token_id)
        packed = pack(self._parts(prompts), self.mask_length, mask_id, model.device, model.dtype)
        blocks = blocks_of(self.body, self.num_layers)
        body, own_blocks = own_copy(self.body, blocks)
        scratch = Scratch() if model.device.type == "cpu" else None
        own_blocks._modules[str(self.num_layers - 1)] = _LastBlock(blocks[-1], packed, scratch)
        states: Tensor = body(**packed.inputs, scratch=scratch)[0]
        return states[0].float().view(len(prompts), self.mask_length, -1).mean(1)
