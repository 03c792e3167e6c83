"""Late interaction: masked LMs in which only the masks attend to both text and question, in every layer.

A text's states do not depend on the question, nor a question's on the text (as in PreTTR and ColBERT; here the masks of the
InBedder paper interact). So a text is encoded once for all questions, a question once for all texts, and each pair costs only its
masks. The model must be trained this way (``late_interaction`` of a recipe).

The text is read by the base as it was before training, with its own token type: its mean state b(x) is the base's own vector of
the text. Question and masks are read by the trained model, with the second token type and positions that start at 0. With a(x, i)
the mean state of the masks and q(i) that of the question::

    v(x, i) = (1 - g(i)) unit(a(x, i)) + g(i) unit(b(x))        g(i) = sigmoid(w q(i) + c), a gate that is trained with the rest

A multilingual base places a text by its language too. ``LanguageFilter`` takes the directions in which languages differ out of
b(x), so that texts of the same content in two languages are near; which language it is, a(x, i) still shows if i asks for it.

A batch is two rows without padding (``packed_row``) with the attention of ``packed_attention``.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from inbedder.backbones.bert import BertForMaskedLM
from inbedder.backbones.masked import MaskedBackbone, limit_to_positions, with_float32_head
from inbedder.backbones.packed_attention import Scratch, TextStates, attend
from inbedder.backbones.packed_row import PackedBatch, Padded, PromptParts, pack, split_prompt
from inbedder.backbones.transformer import capture_layer, check_layer, get_body, get_pad_id
from inbedder.errors import ModelError
from inbedder.options import Sampling
from inbedder.prompting.batching import pad
from inbedder.vectors.pooling import masked_mean, widen

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from inbedder.prompting.tokenization import PromptTokens

ATTENTION = "inbedder_late_interaction"
GATE, LANGUAGE_FILTER = "gate", "language_filter"
"""Names of modules in the model, and so among its weights."""


class LanguageFilter(nn.Module):
    """A projection of vectors away from the directions in which languages differ.

    The directions are found by ``find_language_directions`` and not trained.
    """

    def __init__(self, width: int, num_directions: int) -> None:
        """Make a filter that changes nothing."""
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(width), requires_grad=False)
        self.directions = nn.Parameter(torch.zeros(num_directions, width), requires_grad=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Filter vectors, float32, shape (..., d)."""
        directions, centred = widen(self.directions), vectors - widen(self.mean)
        return centred - centred @ directions.T @ directions


def find_language_directions(
    vectors: Tensor, languages: Sequence[str], corpora: Sequence[str], num_directions: int
) -> tuple[Tensor, Tensor]:
    """Find the directions in which languages differ: principal components of their means within each parallel corpus.

    As in LIR (Yang et al. 2021, A Simple and Effective Method To Eliminate the Self Language Bias in Multilingual
    Representations), with means of parallel texts in place of all texts of a language.

    Args:
        vectors: float32, shape (n, d), of length 1.
        languages: The n languages.
        corpora: The n corpora; within one, texts of different languages have the same contents.
        num_directions: Number of directions.

    Returns:
        The mean vector, shape (d,), and orthonormal directions, shape (num_directions, d).
    """
    groups = {key: [] for key in sorted(set(zip(corpora, languages, strict=True)))}  # type: ignore[var-annotated]
    for row, key in enumerate(zip(corpora, languages, strict=True)):
        groups[key].append(row)
    means = {key: vectors[rows].mean(0) for key, rows in groups.items()}
    differences = []
    for corpus in sorted(set(corpora)):
        corpus_means = torch.stack([mean for key, mean in means.items() if key[0] == corpus])
        differences.append(corpus_means - corpus_means.mean(0))
    _, _, directions = torch.linalg.svd(torch.cat(differences), full_matrices=False)
    return vectors.mean(0), directions[:num_directions]


def add_language_filter(model: PreTrainedModel, num_directions: int) -> LanguageFilter:
    """Add a filter of languages to a model with a gate, and return it."""
    language_filter = LanguageFilter(model.config.hidden_size, num_directions).to(model.device, model.dtype)
    model.add_module(LANGUAGE_FILTER, language_filter)
    return language_filter


def add_gate(model: PreTrainedModel) -> None:
    """Add a gate to a BERT masked LM and set its attention to ``attend``; reject other kinds and BERTs with one token type."""
    if model.config.model_type != "bert" or model.config.type_vocab_size < 2:
        raise ModelError(f"late_interaction needs a BERT with two token types, not {model.config.model_type!r}.")
    gate = nn.Linear(model.config.hidden_size, 1, device=model.device, dtype=model.dtype)
    nn.init.zeros_(gate.weight)
    nn.init.zeros_(gate.bias)
    model.add_module(GATE, gate)
    set_attention(model)


def set_attention(model: PreTrainedModel) -> None:
    """Set the attention of a BERT of transformers to ``attend``; the own one has no other."""
    if isinstance(model, BertForMaskedLM):
        return
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION, attend)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    model.set_attn_implementation(ATTENTION)


def copy_body(model: PreTrainedModel) -> nn.Module:
    """Copy a model without its head, sharing the word embeddings, before an adapter changes it."""
    body = get_body(model)
    words = cast("nn.Embedding", model.get_input_embeddings()).weight
    return deepcopy(body, {id(words): words}).requires_grad_(False)


def read_texts(body: nn.Module, packed: PackedBatch, scratch: Scratch | None = None) -> tuple[TextStates, Tensor]:
    """Read the row of texts: their keys and values, and the states of the last layer, shape (tokens, d)."""
    text_states = TextStates()
    states = body(**packed.texts, text_states=text_states, scratch=scratch)[0]
    return text_states, states[0]


def combine(model: nn.Module, pair_states: Tensor, text_states: Tensor, packed: PackedBatch) -> Tensor:
    """Compute the vectors of pairs from the last layer's states: v(x, i) of the module's equations.

    Args:
        model: The model with its gate, and perhaps a language filter.
        pair_states: States of masks and questions, shape (tokens, d).
        text_states: States of the texts, shape (tokens, d).
        packed: The batch.

    Returns:
        float32, shape (pairs, d).
    """
    pair_states, text_states = widen(pair_states), widen(text_states)
    answers = pair_states[: packed.num_masks].view(len(packed.text_tokens.positions), -1, pair_states.shape[-1]).mean(1)
    questions = _pool(pair_states, packed.instruction_tokens)
    gate, language_filter = getattr(model, GATE), getattr(model, LANGUAGE_FILTER, None)
    share = torch.sigmoid(widen(gate(questions.to(next(gate.parameters()).dtype))))
    base = _pool(text_states, packed.text_tokens)
    if language_filter is not None:
        base = language_filter(normalize(base, dim=-1))
    return (1 - share) * normalize(answers, dim=-1) + share * normalize(base, dim=-1)


def _pool(states: Tensor, tokens: Padded) -> Tensor:
    """Average the states of tokens, shape (rows, d)."""
    return masked_mean(states[tokens.positions], tokens.exists)


class LateInteractionBackbone(MaskedBackbone):
    """A masked LM trained to read text and question separately."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text_model: PreTrainedModel, mask_length: int = 3
    ) -> None:
        """Wrap a BERT masked LM with a gate, and its base, which reads texts."""
        super().__init__(model, tokenizer, mask_length)
        set_attention(text_model)
        self.text_model, self.text_body = text_model, get_body(text_model)

    def split(self, prompt: PromptTokens) -> PromptParts:
        """Split a prompt into the ids of its text and of its instruction, each with the special tokens."""
        return split_prompt(prompt.ids, prompt.instruction[0], prompt.response, prompt.ids[prompt.response + self.mask_length :])

    def _pack(self, prompts: Sequence[PromptTokens]) -> PackedBatch:
        if any(prompt.instruction[0] < prompt.text[1] for prompt in prompts):
            raise ModelError(
                "This model reads text and instruction separately. Choose a template with {input} before {instruction}."
            )
        return pack(
            list(map(self.split, prompts)),
            self.mask_length,
            int(self.tokenizer.mask_token_id),
            self.model.device,
            self.model.dtype,
        )

    @torch.inference_mode()
    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool one batch, encoding each text and each question once; texts come first in prompts. See ``Backbone.embed``."""
        packed = self._pack(prompts)
        scratch = Scratch() if self.model.device.type == "cpu" else None
        layer = check_layer(layer, self.num_layers)
        if pooling == "avg-gen" and not filter_ids and layer == self.num_layers:
            text_states, states = read_texts(self.text_body, packed, scratch)
            pair_states = self.body(**packed.pairs, text_states=text_states, scratch=scratch)[0][0]
            return combine(self.model, pair_states, states, packed)
        return self._pool_tokens(packed, pooling, layer, filter_ids)

    def _pool_tokens(self, packed: PackedBatch, pooling: str, layer: int, filter_ids: Sequence[int]) -> Tensor:
        """Average states of a layer without the gate."""
        text_body, states_of_texts = capture_layer(self.text_body, self.text_body, layer, self.num_layers)
        model, states_of_pairs = capture_layer(self.model, self.body, layer, self.num_layers)
        text_states, _ = read_texts(text_body, packed)
        logits = model(**packed.pairs, text_states=text_states).logits[0]
        states = torch.cat([states_of_pairs[0][0], states_of_texts[0][0]])
        ids = torch.cat([packed.pairs["input_ids"][0], packed.texts["input_ids"][0]])
        masks = torch.arange(packed.num_masks, device=states.device).view(-1, self.mask_length)
        if pooling == "avg-gen":
            is_pooled = ~torch.isin(logits[masks].argmax(-1), torch.tensor(filter_ids, device=states.device))
            is_pooled |= ~is_pooled.any(1, keepdim=True)
            return masked_mean(states[masks], is_pooled)
        texts, questions = packed.text_tokens, packed.instruction_tokens
        positions = torch.cat([masks, questions.positions, texts.positions + len(states_of_pairs[0][0])], 1)
        is_pooled = torch.cat([torch.ones_like(masks, dtype=torch.bool), questions.exists, texts.exists], 1)
        if pooling == "avg-ppt":
            is_pooled[:, : self.mask_length] = False
            is_pooled &= ids[positions] != self.end
        return masked_mean(states[positions], is_pooled)

    def _score_masks(self, prompts: Sequence[PromptTokens]) -> tuple[Tensor, Tensor, Tensor]:
        packed = self._pack(prompts)
        scratch = Scratch() if self.model.device.type == "cpu" else None
        is_mask = torch.arange(packed.pairs["input_ids"].shape[1], device=self.model.device)[None] < packed.num_masks
        model, pair_states = capture_layer(self.model, self.body, self.num_layers, self.num_layers)
        model = with_float32_head(limit_to_positions(model, get_body(model), is_mask))
        text_states, states = read_texts(self.text_body, packed, scratch)
        logits = model(**packed.pairs, text_states=text_states, scratch=scratch).logits
        vectors = combine(self.model, pair_states[0][0], states, packed)
        ids, _ = pad([prompt.ids for prompt in prompts], get_pad_id(self.tokenizer))
        return vectors, widen(logits).view(len(prompts), self.mask_length, -1), ids.to(self.model.device)
