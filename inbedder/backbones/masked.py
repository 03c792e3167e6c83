"""Masked LMs (BERT, RoBERTa, ...): mask tokens after the prompt stand for the answer.

Paper, section 5.1 and appendix C: avg-gen is the mean over the masks, avg-ppt over all positions that are neither mask,
padding nor end token, avg-all over all but padding; there is no 1st-gen and no last-gen.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inbedder.backbones.sampling import draw, uniform_numbers
from inbedder.backbones.transformer import (
    M,
    blocks_of,
    body_of,
    check_layer,
    dtype_name,
    likeliest_words,
    own_copy,
    pad_id_of,
    position_limit,
    tapped,
)
from inbedder.errors import ModelError
from inbedder.options import Sampling
from inbedder.pooling import masked_mean, poolings_of
from inbedder.prompting.batching import pad
from inbedder.prompting.tokenization import PromptTokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def passing_only(model: M, place: nn.Module, keep: Tensor) -> M:
    """A model of one's own that hands on the kept positions of a module's output alone: what follows is computed for these.

    Args:
        model: The model.
        place: The model without its head, or the attention of its last block.
        keep: Positions, bool, shape (batch, positions), the same number in each row.

    Returns:
        A copy that shares the model's weights; what follows the place has shape (batch, kept, ...).
    """
    twin, place = own_copy(model, place)
    place.register_forward_hook(lambda _module, _args, output: kept_alone(output, keep))
    return twin


def kept_alone(output: Any, keep: Tensor) -> Any:
    """Reduce the output of a body or attention from states (batch, positions, d) to the kept positions (batch, kept, d)."""
    states = output[0]
    rows = states[keep].view(keep.shape[0], -1, states.shape[-1])
    if isinstance(output, tuple):
        return (rows, *output[1:])
    output.last_hidden_state = rows
    return output


def scoring_in_float32(model: M) -> M:
    """Copy a masked LM, weights shared, to score words in float32: in 16 bits nearly as likely words would score the same.

    The model itself comes back where its head is in float32, or quantized.
    """
    head = cast("PreTrainedModel", model).get_output_embeddings()
    if not isinstance(head, nn.Linear) or head.weight.dtype not in (torch.bfloat16, torch.float16):
        return model
    twin, own = own_copy(model, head)
    bias = None if head.bias is None else head.bias.float()
    own.forward = lambda states: F.linear(states.float(), head.weight.float(), bias)  # type: ignore[method-assign]
    return twin


STEM = 5
"""Words that share so many first letters (transfer, transferred), or all but an s (card, cards), are one word to an answer."""


class MaskedBackbone:
    """A masked LM that answers by filling ``mask_length`` masks."""

    kind: str = "masked"
    called = "A masked LM"
    continues_prompt = False
    bare = False
    poolings: tuple[str, ...] = poolings_of("masked")

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, mask_length: int = 3) -> None:
        """Wrap a loaded model; ``mask_length`` masks follow a prompt, at least 1 or a ModelError is raised."""
        if mask_length < 1:
            raise ModelError(f"mask_length must be at least 1 for a masked LM, not {mask_length}.")
        self.model = model.eval()
        self.precision = dtype_name(model)
        self.body = body_of(model)
        self.tokenizer = tokenizer
        self.mask_length = mask_length
        self.num_layers: int = model.config.num_hidden_layers
        self.answers = True
        self.adapter: str | None = None
        self.weight_files: Any = None
        self.position_limit = position_limit(model)
        end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
        self.end: int | None = end
        """The token that ends an answer; where the tokenizer has none, an answer fills every mask."""

    @cached_property
    def _words(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of each token of the head: whether it continues a word, whether it is one letter, a number of its stem.

        WordPiece alone marks what continues a word; other vocabularies have neither pieces nor letters here, one stem per token.
        """
        size = int(self.model.get_output_embeddings().weight.shape[0])
        tokens = {number: token for token, number in self.tokenizer.get_vocab().items()}
        is_word_piece = type(self.tokenizer.backend_tokenizer.model).__name__ == "WordPiece"
        names = [tokens.get(number, "") if is_word_piece else "" for number in range(size)]
        pieces = [name.startswith("##") and len(name) > 2 for name in names]
        stems: dict[str, int] = {}
        return (
            torch.tensor(pieces),
            torch.tensor([len(name) == 1 and name.isascii() and name.isalpha() for name in names]),
            torch.tensor(
                [stems.setdefault(name.rstrip("s")[:STEM] or f" {number}", len(stems)) for number, name in enumerate(names)]
            ),
        )

    @cached_property
    def _last_mixing(self) -> nn.Module:
        """Behind it no position looks at another: the last block's attention in models built as BERT is, else the body."""
        try:
            last = blocks_of(self.body, self.num_layers)[-1]
        except ModelError:
            return self.body
        attention = getattr(last, "attention", None)
        return attention if attention is not None and hasattr(last, "feed_forward_chunk") else self.body

    def _inputs(self, prompts: Sequence[PromptTokens]) -> tuple[dict[str, Tensor], Tensor]:
        ids, attention = pad([prompt.ids for prompt in prompts], pad_id_of(self.tokenizer))
        is_mask = torch.zeros_like(attention)
        for row, prompt in enumerate(prompts):
            is_mask[row, prompt.response : prompt.response + self.mask_length] = True
        device = self.model.device
        inputs = {"input_ids": ids.to(device), "attention_mask": attention.to(device)}
        return inputs, is_mask.to(device)

    @torch.inference_mode()
    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool one batch in one pass without logits, as ``Backbone.embed``."""
        inputs, is_mask = self._inputs(prompts)
        if pooling == "avg-gen" and not filter_ids and check_layer(layer, self.num_layers) == self.num_layers:
            masks: Tensor = passing_only(self.body, self._last_mixing, is_mask)(**inputs)[0]
            return masks.float().mean(1)
        model, states = tapped(self.model, self.body, check_layer(layer, self.num_layers), self.num_layers)
        if filter_ids and pooling == "avg-gen":
            predicted = passing_only(model, body_of(model), is_mask)(**inputs).logits.argmax(-1).flatten()
            kept = is_mask.clone()
            kept[is_mask] = ~torch.isin(predicted, torch.tensor(filter_ids, device=predicted.device))
            kept |= is_mask & ~kept.any(1, keepdim=True)
            return masked_mean(states[0], kept)
        body_of(model)(**inputs)
        return masked_mean(states[0], self._kept(pooling, inputs, is_mask))

    def _kept(self, pooling: str, inputs: dict[str, Tensor], is_mask: Tensor) -> Tensor:
        """The positions that a pooling takes the mean of, bool, shape (batch, positions)."""
        attention = inputs["attention_mask"]
        if pooling == "avg-gen":
            return is_mask
        if pooling == "avg-all":
            return attention
        kept = attention & ~is_mask
        return kept if self.end is None else kept & (inputs["input_ids"] != self.end)

    @torch.inference_mode()
    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> list[list[str]]:
        """Fill the masks of one batch in one pass, then read them from the first to the last, as ``Backbone.answer``.

        The masks do not see each other's words, so a word that stands already, or one of its stem, is not said again; a piece of
        a word is said only behind what stands before it in the prompt, and a single letter only where the prompt has it, so that
        no word is made up; nothing follows the end, and of special tokens the end alone is said, not at the first mask.
        """
        inputs, is_mask = self._inputs(prompts)
        model = scoring_in_float32(passing_only(self.model, self._last_mixing, is_mask))
        logits = model(**inputs).logits.float()
        numbers = uniform_numbers(prompts, sampling, self.mask_length).to(logits.device)
        drawn = self._read_masks(logits, inputs["input_ids"], sampling, numbers)
        return [self.tokenizer.batch_decode(ids.tolist(), skip_special_tokens=True) for ids in drawn]

    def _read_masks(self, logits: Tensor, prompts: Tensor, sampling: Sampling, numbers: Tensor) -> Tensor:
        """One token per mask: (batch, masks, vocabulary) and the prompts' ids (batch, length) -> (batch, n, masks)."""
        batch, masks, size = logits.shape
        is_piece, is_letter, stems = (word.to(logits.device) for word in self._words)
        logits[..., [special for special in self.tokenizer.all_special_ids if special < size and special != self.end]] = float(
            "-inf"
        )
        if self.end is not None:
            logits[:, 0, self.end] = float("-inf")
        prompts = prompts.repeat_interleave(sampling.n, 0)
        banned = is_letter.expand(len(prompts), -1).scatter(1, prompts, False)
        ended = torch.zeros(len(prompts), dtype=torch.bool, device=logits.device)
        answers: list[Tensor] = []
        for mask in range(masks):
            closed = banned | is_piece
            if answers:
                follows = (prompts[:, :-1] == answers[-1].unsqueeze(1)) & is_piece[prompts[:, 1:]]
                rows, places = follows.nonzero(as_tuple=True)
                closed[rows, prompts[rows, places + 1]] = False
            scores = logits[:, mask].repeat_interleave(sampling.n, 0).masked_fill(closed, float("-inf"))
            token = scores.argmax(-1) if sampling.temperature == 0 else draw(scores, sampling, numbers[:, mask])
            if self.end is not None:
                token = token.masked_fill(ended, self.end)
                ended = ended | (token == self.end)
            banned = banned | ((stems == stems[token].unsqueeze(1)) & (~is_piece[token] & ~ended).unsqueeze(1))
            answers.append(token)
        return torch.stack(answers, 1).view(batch, sampling.n, masks)

    @torch.inference_mode()
    def read_vectors(self, vectors: Tensor, top: int) -> list[list[str]]:
        """Apply the answer head, as ``Backbone.read_vectors``; only words and parts of words come back."""
        states = vectors.to(self.model.device, self.model.dtype)
        mask = torch.full((len(states), 1), self.tokenizer.mask_token_id, device=self.model.device)

        def replace(_module: nn.Module, _args: Any, output: Any) -> Any:
            output.last_hidden_state = states.unsqueeze(1)
            return output

        model, body = own_copy(self.model, self.body)
        body.register_forward_hook(replace)
        logits = model(input_ids=mask, attention_mask=torch.ones_like(mask)).logits[:, 0]
        return likeliest_words(logits, self.tokenizer, top)
