"""Masked LMs (BERT, RoBERTa, ...): mask tokens after the prompt take the place of the answer.

Paper, section 5.1 and appendix C: avg-gen is the mean over the masks, avg-ppt over all positions except masks, padding and end
token, avg-all over all except padding. There is no 1st-gen and no last-gen.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inbedder.backbones.confidence import ScoredAnswer, measure_confidences
from inbedder.backbones.padding_check import is_padding_safe, split_by_length, split_by_prompt
from inbedder.backbones.sampling import sample_tokens, sample_uniform_numbers
from inbedder.backbones.traits import TransformersBackbone
from inbedder.backbones.transformer import (
    M,
    capture_layer,
    check_layer,
    copy_down_to,
    decode_top_tokens,
    find_blocks,
    get_body,
    get_pad_id,
)
from inbedder.errors import ModelError
from inbedder.options import Sampling
from inbedder.prompting.batching import pad
from inbedder.prompting.tokenization import PromptTokens
from inbedder.prompting.words import SPACELESS, find_scripts
from inbedder.vectors.pooling import list_poolings, masked_mean, widen

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from inbedder.backbones.protocol import AnsweredVector, JointReading


STEM_LETTERS = 5
"""Words with this many common first letters (transfer, transferred), or that differ by a final s only (card, cards), are one word
in an answer."""
WORD_START = "▁"
"""SentencePiece's mark of a token that begins a word."""


def limit_to_positions(model: M, module: nn.Module, keep: Tensor) -> M:
    """Copy a model so that everything after one of its modules is computed only for some positions.

    Args:
        model: The model.
        module: The model without its head, or the attention of its last block.
        keep: The positions, bool, shape (batch, positions), the same number in each row.

    Returns:
        A copy that shares the model's weights; states after the module have the shape (batch, kept, ...).
    """
    model_copy, module = copy_down_to(model, module)
    module.register_forward_hook(lambda _module, _args, output: select_positions(output, keep))
    return model_copy


def select_positions(output: Any, keep: Tensor) -> Any:
    """Select the positions to keep in the output of a body or attention: states (batch, positions, d) -> (batch, kept, d)."""
    states = output[0]
    rows = states[keep].view(keep.shape[0], -1, states.shape[-1])
    if isinstance(output, tuple):
        return (rows, *output[1:])
    output.last_hidden_state = rows
    return output


def with_float32_head(model: M) -> M:
    """Copy a masked LM, sharing its weights, to score words in float32: in 16 bits, close scores of words become equal.

    A model whose head is in float32 or quantized is returned unchanged.
    """
    head = cast("PreTrainedModel", model).get_output_embeddings()
    if not isinstance(head, nn.Linear) or head.weight.dtype not in (torch.bfloat16, torch.float16):
        return model
    model_copy, head_copy = copy_down_to(model, head)
    bias = None if head.bias is None else head.bias.float()
    head_copy.forward = lambda states: F.linear(states.float(), head.weight.float(), bias)
    return model_copy


def _split_marks(tokens: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> tuple[list[str], list[bool]]:
    """Split a vocabulary's tokens into their letters, without marks, and whether they continue a word."""
    if type(tokenizer.backend_tokenizer.model).__name__ == "WordPiece":
        return list(tokens), [token.startswith("##") and len(token) > 2 for token in tokens]
    if not any(token.startswith(WORD_START) for token in tokens):
        return [""] * len(tokens), [False] * len(tokens)
    return [token.lstrip(WORD_START).lower() for token in tokens], [_is_word_piece(token) for token in tokens]


def _is_word_piece(token: str) -> bool:
    """Return whether a token of SentencePiece continues a word: it has no mark, and its script has spaces between words."""
    return token[:1].isalpha() and not SPACELESS.match(token)


class MaskedBackbone(TransformersBackbone):
    """A masked LM that answers by filling ``mask_length`` masks."""

    kind = "masked"
    display_name = "A masked LM"
    poolings = list_poolings("masked")
    constrained_decoding = True
    """Whether an answer has no special token, invalid word, repeated word or foreign script (see ``answer``)."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, mask_length: int = 3) -> None:
        """Wrap a loaded model; ``mask_length``, at least 1, is the number of masks after a prompt."""
        if mask_length < 1:
            raise ModelError(f"mask_length must be at least 1 for a masked LM, not {mask_length}.")
        super().__init__(model, tokenizer)
        self.body = get_body(model)
        self.mask_length = mask_length
        self.num_layers = model.config.num_hidden_layers
        end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
        self.end: int | None = end
        """The id of the token that ends an answer; None if the tokenizer has none, so that an answer fills every mask."""

    @cached_property
    def _words(self) -> tuple[Tensor, Tensor, Tensor]:
        """For each token of the head: whether it continues a word, whether it is one letter, and the number of its stem.

        WordPiece marks tokens that continue a word, SentencePiece those that begin one; there, tokens in scripts without spaces
        begin words. In other vocabularies there are no pieces or letters here, and each token is its own stem.
        """
        names, pieces = self._split_vocabulary()
        stems: dict[str, int] = {}
        return (
            torch.tensor(pieces),
            torch.tensor([len(name) == 1 and name.isascii() and name.isalpha() for name in names]),
            torch.tensor(
                [
                    stems.setdefault(name.rstrip("s")[:STEM_LETTERS] or f" {number}", len(stems))
                    for number, name in enumerate(names)
                ]
            ),
        )

    @cached_property
    def _scripts(self) -> tuple[Tensor, list[frozenset[str]]]:
        """For each token of the head the number of its set of scripts, and the sets; special tokens have no script."""
        names, _ = self._split_vocabulary()
        special_ids = set(self.tokenizer.all_special_ids)
        sets: dict[frozenset[str], int] = {}
        numbers = [
            sets.setdefault(frozenset() if token_id in special_ids else find_scripts(name), len(sets))
            for token_id, name in enumerate(names)
        ]
        return torch.tensor(numbers), list(sets)

    def _split_vocabulary(self) -> tuple[list[str], list[bool]]:
        """Split the head's tokens as ``_split_marks`` does."""
        size = int(self.model.get_output_embeddings().weight.shape[0])
        tokens = {number: token for token, number in self.tokenizer.get_vocab().items()}
        return _split_marks([tokens.get(number, "") for number in range(size)], self.tokenizer)

    @cached_property
    def _last_mixing(self) -> nn.Module:
        """The last module that mixes positions: the last block's attention in known models like BERT, else the body."""
        if not is_padding_safe(self.model, self.kind):
            return self.body
        try:
            last = find_blocks(self.body, self.num_layers)[-1]
        except ModelError:
            return self.body
        attention = getattr(last, "attention", None)
        return attention if attention is not None and hasattr(last, "feed_forward_chunk") else self.body

    def _make_inputs(self, prompts: Sequence[PromptTokens]) -> tuple[dict[str, Tensor], Tensor]:
        ids, attention = pad([prompt.ids for prompt in prompts], get_pad_id(self.tokenizer))
        is_mask = torch.zeros_like(attention)
        for row, prompt in enumerate(prompts):
            is_mask[row, prompt.response : prompt.response + self.mask_length] = True
        device = self.model.device
        inputs = {"input_ids": ids.to(device), "attention_mask": attention.long().to(device)}
        return inputs, is_mask.to(device)

    @split_by_length
    @torch.inference_mode()
    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool one batch in one pass without logits; see ``Backbone.embed``."""
        inputs, is_mask = self._make_inputs(prompts)
        if pooling == "avg-gen" and not filter_ids and check_layer(layer, self.num_layers) == self.num_layers:
            masks: Tensor = limit_to_positions(self.body, self._last_mixing, is_mask)(**inputs)[0]
            return widen(masks).mean(1)
        model, states = capture_layer(self.model, self.body, check_layer(layer, self.num_layers), self.num_layers)
        if filter_ids and pooling == "avg-gen":
            predicted = limit_to_positions(model, get_body(model), is_mask)(**inputs).logits.argmax(-1).flatten()
            is_pooled = is_mask.clone()
            is_pooled[is_mask] = ~torch.isin(predicted, torch.tensor(filter_ids, device=predicted.device))
            is_pooled |= is_mask & ~is_pooled.any(1, keepdim=True)
            return masked_mean(states[0], is_pooled)
        get_body(model)(**inputs)
        return masked_mean(states[0], self._select_pooled(pooling, inputs, is_mask))

    def _select_pooled(self, pooling: str, inputs: dict[str, Tensor], is_mask: Tensor) -> Tensor:
        """Select the positions that a pooling averages, bool, shape (batch, positions)."""
        attention = inputs["attention_mask"].bool()
        if pooling == "avg-gen":
            return is_mask
        if pooling == "avg-all":
            return attention
        is_pooled = attention & ~is_mask
        return is_pooled if self.end is None else is_pooled & (inputs["input_ids"] != self.end)

    @split_by_prompt
    @torch.inference_mode()
    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> list[list[ScoredAnswer]]:
        """Score the masks of one batch in one pass, then fill them from first to last; see ``Backbone.answer``.

        The masks do not see each other's words, so an answer does not repeat a word or its stem. To avoid invalid words, a word
        piece is used only after the token that precedes it in the prompt, and a single letter only if the prompt has it. The end
        token is the only special token in an answer; it is never the first, and nothing follows it. Letters are of the scripts
        of text and question, if the vocabulary spells its tokens in letters.

        Without ``constrained_decoding`` each mask is filled on its own, with any token, as in the authors' code (the argmax at a
        temperature of 0); special tokens are left out of the text.

        An answer's confidence is measured on the logits before any of this, over its masks up to the end token.
        """
        return self._choose_answers(prompts, *self._score_masks(prompts)[1:], sampling)

    def embed_and_answer(
        self, prompts: Sequence[PromptTokens], reading: JointReading, **cached_texts: Any
    ) -> list[AnsweredVector]:
        """Pool and answer one batch, by default in one pass; see ``Backbone.embed_and_answer``."""
        is_last = check_layer(reading.layer, self.num_layers) == self.num_layers
        if reading.pooling != "avg-gen" or not is_last or self.reads_padding:
            return super().embed_and_answer(prompts, reading, **cached_texts)
        with torch.inference_mode():
            vectors, logits, ids = self._score_masks(prompts)
            return list(zip(vectors, self._choose_answers(prompts, logits, ids, reading.answering), strict=True))

    def _choose_answers(
        self, prompts: Sequence[PromptTokens], logits: Tensor, ids: Tensor, sampling: Sampling
    ) -> list[list[ScoredAnswer]]:
        """Fill the masks of one batch from their scores and the prompts' ids."""
        normalizers = logits.logsumexp(-1, keepdim=True)
        numbers = sample_uniform_numbers(prompts, sampling, self.mask_length).to(logits.device)
        if self.constrained_decoding:
            logits.masked_fill_(self._find_foreign_tokens(prompts).to(logits.device).unsqueeze(1), float("-inf"))
            sampled_ids = self._fill_masks(logits, ids, sampling, numbers)
        else:
            sampled_ids = self._fill_masks_independently(logits, sampling, numbers)
        log_probs = (logits.gather(-1, sampled_ids.transpose(1, 2)) - normalizers).transpose(1, 2)
        stop_ids = [self.end] if self.constrained_decoding and self.end is not None else []
        confidences = measure_confidences(log_probs, sampled_ids, stop_ids).tolist()
        texts = [self.tokenizer.batch_decode(ids.tolist(), skip_special_tokens=True) for ids in sampled_ids]
        return [list(map(ScoredAnswer, *row)) for row in zip(texts, confidences, strict=True)]

    def _find_foreign_tokens(self, prompts: Sequence[PromptTokens]) -> Tensor:
        """Find the tokens with a script that neither text nor question has, bool, shape (batch, vocabulary).

        If neither has a letter, no token is foreign.
        """
        set_of, sets = self._scripts
        foreign_sets = []
        for prompt in prompts:
            ids = np.concatenate([prompt.ids[slice(*span)] for span in (prompt.text, prompt.instruction)]).astype(np.int64)
            scripts = frozenset[str]().union(*(sets[number] for number in set_of[ids].unique().tolist()))
            foreign_sets.append([bool(scripts) and not token_scripts <= scripts for token_scripts in sets])
        return torch.tensor(foreign_sets)[:, set_of]

    def _score_masks(self, prompts: Sequence[PromptTokens]) -> tuple[Tensor, Tensor, Tensor]:
        """Score the masks of one batch: vectors (batch, d), float32 logits (batch, masks, vocabulary), and ids (batch, length).

        The vectors are those of the default pooling.
        """
        inputs, is_mask = self._make_inputs(prompts)
        limited = limit_to_positions(self.model, self._last_mixing, is_mask)
        model, states = capture_layer(limited, get_body(limited), self.num_layers, self.num_layers)
        logits = widen(with_float32_head(model)(**inputs).logits)
        return widen(states[0]).mean(1), logits, inputs["input_ids"]

    def _fill_masks_independently(self, logits: Tensor, sampling: Sampling, numbers: Tensor) -> Tensor:
        """Choose each mask's token on its own: logits (batch, masks, vocabulary) -> ids (batch, n, masks)."""
        batch, masks, _ = logits.shape
        if sampling.temperature == 0:
            return logits.argmax(-1).unsqueeze(1).expand(batch, sampling.n, masks)
        columns = logits.repeat_interleave(sampling.n, 0).unbind(1)
        tokens = [sample_tokens(scores, sampling, numbers[:, mask]) for mask, scores in enumerate(columns)]
        return torch.stack(tokens, 1).view(batch, sampling.n, masks)

    def _fill_masks(self, logits: Tensor, prompts: Tensor, sampling: Sampling, numbers: Tensor) -> Tensor:
        """Choose one token per mask: logits (batch, masks, vocabulary), prompt ids (batch, length) -> ids (batch, n, masks)."""
        batch, masks, size = logits.shape
        is_piece, is_letter, stems = (word.to(logits.device) for word in self._words)
        logits[..., [special for special in self.tokenizer.all_special_ids if special < size and special != self.end]] = float(
            "-inf"
        )
        if self.end is not None:
            logits[:, 0, self.end] = float("-inf")
        prompts = prompts.repeat_interleave(sampling.n, 0)
        is_used = is_letter.expand(len(prompts), -1).scatter(1, prompts, False)
        is_finished = torch.zeros(len(prompts), dtype=torch.bool, device=logits.device)
        answers: list[Tensor] = []
        for mask in range(masks):
            is_excluded = is_used | is_piece
            if answers:
                follows = (prompts[:, :-1] == answers[-1].unsqueeze(1)) & is_piece[prompts[:, 1:]]
                rows, positions = follows.nonzero(as_tuple=True)
                is_excluded[rows, prompts[rows, positions + 1]] = False
            scores = logits[:, mask].repeat_interleave(sampling.n, 0).masked_fill(is_excluded, float("-inf"))
            token = scores.argmax(-1) if sampling.temperature == 0 else sample_tokens(scores, sampling, numbers[:, mask])
            if self.end is not None:
                token = token.masked_fill(is_finished, self.end)
                is_finished = is_finished | (token == self.end)
            is_used = is_used | ((stems == stems[token].unsqueeze(1)) & (~is_piece[token] & ~is_finished).unsqueeze(1))
            answers.append(token)
        return torch.stack(answers, 1).view(batch, sampling.n, masks)

    @torch.inference_mode()
    def read_vectors(self, vectors: Tensor, top: int) -> list[list[str]]:
        """Apply the answer head, without special tokens; see ``Backbone.read_vectors``."""
        states = vectors.to(self.model.device, self.model.dtype)
        mask = torch.full((len(states), 1), self.tokenizer.mask_token_id, device=self.model.device)

        def replace(_module: nn.Module, _args: Any, output: Any) -> Any:
            if isinstance(output, tuple):
                return (states.unsqueeze(1),)
            output.last_hidden_state = states.unsqueeze(1)
            return output

        model, body = copy_down_to(self.model, self.body)
        body.register_forward_hook(replace)
        logits = model(input_ids=mask, attention_mask=torch.ones_like(mask)).logits[:, 0]
        return decode_top_tokens(logits, self.tokenizer, top)
