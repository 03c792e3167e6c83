"""Late interaction: masked LMs in which only the masks attend to both text and question, in every layer.

A text's states do not depend on the question, nor a question's on the text (as in PreTTR and ColBERT; here the masks of the
InBedder paper interact). So a text is encoded once for all questions, a question once for all texts, and each pair costs only its
masks. The model must be trained this way (``late_interaction`` of a recipe).

The text is encoded as by the base. Question and masks have the second token type, and their positions start at 0. A batch is one
row without padding (``packed_row``) with the attention of ``packed_attention``.
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
from inbedder.backbones.packed_row import PackedBatch, PromptParts, pack, split_prompt
from inbedder.backbones.transformer import check_layer, copy_down_to, find_blocks, get_pad_id
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
    """Set the attention of a BERT masked LM to ``attend``; refuse another kind of model, or one without a second token type."""
    if model.config.model_type != "bert" or model.config.type_vocab_size < 2:
        raise ModelError(f"late_interaction needs a BERT with two token types, not {model.config.model_type!r}.")
    model.set_attn_implementation(ATTENTION)


class _LastBlock(nn.Module):
    """A model's last block, for the masks of a packed row only: the other tokens' states are not used after it."""

    def __init__(self, block: Any, packed: PackedBatch, scratch: Scratch | None) -> None:
        super().__init__()
        self.block = block
        self.packed = packed
        self.scratch = scratch

    def forward(self, states: Tensor, *_args: Any, **_options: Any) -> Tensor:
        """Compute the masks' states from the states of all tokens, shape (1, masks, d)."""
        attention, masks = self.block.attention, states[self.packed.is_mask]
        mixing = attention.self
        width = mixing.attention_head_size
        query, key, value = (
            of(tokens).unflatten(-1, (-1, width)).transpose(0, 1)[None]
            for of, tokens in ((mixing.query, masks), (mixing.key, states[0]), (mixing.value, states[0]))
        )
        mixed, _ = attend(
            mixing, query, key, value, None, scratch=self.scratch, **self.packed.mask_inputs, scaling=mixing.scaling
        )
        output: Tensor = self.block.feed_forward_chunk(attention.output(mixed[0].flatten(1), masks))
        return output[None]


class LateInteractionBackbone(MaskedBackbone):
    """A masked LM trained to read text and question separately."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, mask_length: int = 3) -> None:
        """Wrap a BERT masked LM; refuse a model that cannot read text and instruction separately."""
        super().__init__(model, tokenizer, mask_length)
        prepare(model)

    def _split_prompts(self, prompts: Sequence[PromptTokens]) -> list[PromptParts]:
        if any(prompt.instruction[0] < prompt.text[1] for prompt in prompts):
            raise ModelError(
                "This model reads text and instruction separately. Choose a template with {input} before {instruction}."
            )
        masks = self.mask_length
        return [
            split_prompt(prompt.ids, prompt.instruction[0], prompt.response, prompt.ids[prompt.response + masks :])
            for prompt in prompts
        ]

    def _make_inputs(self, prompts: Sequence[PromptTokens]) -> tuple[dict[str, Tensor], Tensor]:
        """Make one row per prompt with text, question and masks in this order, for all but the default vectors."""
        parts = self._split_prompts(prompts)
        masks = np.full(self.mask_length, self.tokenizer.mask_token_id, dtype=np.int32)
        ids, is_real = pad([np.concatenate([part.text, part.question, masks]) for part in parts], get_pad_id(self.tokenizer))
        text, end = (
            torch.tensor([[length] for length in lengths])
            for lengths in ([len(part.text) for part in parts], [len(part.text) + len(part.question) for part in parts])
        )
        positions = torch.arange(ids.shape[1]).expand_as(ids)
        in_text, is_mask = positions < text, is_real & (positions >= end)
        in_question = is_real & ~in_text & ~is_mask
        same_part = (in_text.unsqueeze(2) & in_text.unsqueeze(1)) | (in_question.unsqueeze(2) & in_question.unsqueeze(1))
        attends = same_part | (~in_text & ~in_question).unsqueeze(2) & is_real.unsqueeze(1)
        columns = {
            "input_ids": ids,
            "position_ids": torch.where(in_text, positions, (positions - text).clamp(min=0)) * is_real,
            "token_type_ids": (is_real & ~in_text).long(),
            "attention_mask": attends.unsqueeze(1),
        }
        device = self.model.device
        return {name: column.to(device) for name, column in columns.items()}, is_mask.to(device)

    def _select_pooled(self, pooling: str, inputs: dict[str, Tensor], is_mask: Tensor) -> Tensor:
        is_real = inputs["attention_mask"][:, 0].diagonal(dim1=1, dim2=2)  # padding does not attend to itself
        return super()._select_pooled(pooling, {**inputs, "attention_mask": is_real}, is_mask)

    @torch.inference_mode()
    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool one batch, encoding each text and each question once; texts come first in prompts. See ``Backbone.embed``."""
        if pooling != "avg-gen" or filter_ids or check_layer(layer, self.num_layers) != self.num_layers:
            return super().embed(prompts, pooling, layer, sampling, filter_ids)
        model, mask_id = self.model, int(self.tokenizer.mask_token_id)
        packed = pack(self._split_prompts(prompts), self.mask_length, mask_id, model.device, model.dtype)
        blocks = find_blocks(self.body, self.num_layers)
        body, own_blocks = copy_down_to(self.body, blocks)
        scratch = Scratch() if model.device.type == "cpu" else None
        own_blocks._modules[str(self.num_layers - 1)] = _LastBlock(blocks[-1], packed, scratch)
        states: Tensor = body(**packed.inputs, scratch=scratch)[0]
        return states[0].float().view(len(prompts), self.mask_length, -1).mean(1)
