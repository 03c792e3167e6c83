"""Encoders of conditional similarity (C-STS, Deshpande et al. 2023, section 4.1).

With f a BERT-like backbone and its pooler, s1 and s2 the sentences, c the condition, t the MLP (or the identity)::

    cross   y = w . t(f([CLS] s1 [SEP] s2 [SEP] c [SEP])) + b        a scalar
            y = w . (t(f1) / |t(f1)| * t(f2) / |t(f2)|) + b          pooler "spans": f1, f2 the means over s1 and over s2
    bi      y = cos(t(f(c: s1)), t(f(c: s2)))                        "c: s" is the rendered template; with input "pair",
            f([CLS] s [SEP] c [SEP])                                 as the authors do
    tri     y = cos(g(s1, c), g(s2, c))
            g(s, c) = t(f(s)) * W f(c)                               combine "hadamard"
            g(s, c) = act(V [t(f(s)), W f(c)])                       combine "mlp"

The bi- and the tri-encoder are symmetric in the two sentences; the cross-encoder reads them in order and is not. W, a linear map
of the condition, is in the authors' code but not in the paper. Pooler "spans" is ours: with w = 1 initially, the scalar starts as
a cosine, which few rows can turn into a rating. The backbones read no segment ids, as in the authors' code, which was run only on
RoBERTa. ``config`` describes a saved model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inbedder.conditional.config import NUM_MASKS, Encoding
from inbedder.prompting.templates import get_template
from inbedder.prompting.tokenization import PromptTokenizer
from inbedder.vectors.pooling import masked_mean

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

from inbedder.conditional.pair_encoder import ConditionalEncoder, Ids, Parts, collate

__all__ = ["BiEncoder", "ConditionalEncoder", "CrossEncoder", "TriEncoder", "collate"]


class CrossEncoder(ConditionalEncoder, kind="cross"):
    """An encoder that reads sentences and condition in one input and returns a scalar, which cosine bounds do not limit."""

    parts = 1

    def __init__(self, backbone: Any, tokenizer: PreTrainedTokenizerBase, encoding: Encoding) -> None:
        """Add a scalar head to a backbone; see ``ConditionalEncoder`` for arguments and errors."""
        super().__init__(backbone, tokenizer, encoding)
        linear = nn.Linear(self.width, 1)
        if encoding.pooler == "spans":
            nn.init.ones_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.scalar = nn.Sequential(nn.Dropout(self._dropout), linear)

    def read(self, first: Sequence[str], second: Sequence[str], conditions: Sequence[str]) -> tuple[list[Parts], int]:
        """Tokenize n pairs to [CLS] sentence1 [SEP] sentence2 [SEP] condition [SEP], cutting the longer sentence first.

        A [SEP] between two texts has a space on both sides, as in the authors' code; RoBERTa has tokens for these spaces.
        """
        if self.encoding.reads == "condition":
            inputs, is_cut = self._tokenize_single(conditions)
            return [(ids,) for ids in inputs], sum(is_cut)
        reads_condition = self.encoding.reads == "all"
        first_ids = self._tokenize([f"{text} " for text in first])
        second_ids = self._tokenize([f" {text} " if reads_condition else f" {text}" for text in second])
        condition_ids = self._tokenize([f" {text}" for text in conditions]) if reads_condition else [None] * len(first)
        rows: list[Parts] = []
        num_cut = 0
        for ids1, ids2, ids3, condition in zip(first_ids, second_ids, condition_ids, conditions, strict=True):
            last_part = [] if ids3 is None else [ids3]
            room = self.encoding.max_length - 3 - sum(len(ids) + 1 for ids in last_part)
            if room < 2:
                raise self._make_length_error(condition)
            length1 = min(len(ids1), max(room - len(ids2), (room + 1) // 2))
            rows.append((self._join(ids1[:length1], ids2[: room - length1], *last_part),))
            num_cut += len(ids1) + len(ids2) > room
        return rows, num_cut

    def score(self, features: Sequence[Tensor]) -> Tensor:
        """Score n pairs, shape (n,), from one vector of the whole input or one of each sentence."""
        vectors = [self.transform(feature) for feature in features]
        joined = vectors[0] if len(vectors) == 1 else F.normalize(vectors[0], dim=-1) * F.normalize(vectors[1], dim=-1)
        scores: Tensor = self.scalar(joined).squeeze(-1)
        return scores

    def _extract_features(self, input_ids: Tensor, attention_mask: Tensor) -> Sequence[Tensor]:
        if self.encoding.pooler != "spans":
            return super()._extract_features(input_ids, attention_mask)
        states = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return [masked_mean(states, span) for span in self._mark_sentences(input_ids, attention_mask.bool())]

    def _mark_sentences(self, ids: Tensor, mask: Tensor) -> Iterator[Tensor]:
        """Yield the positions of each of the two sentences, bool, (n, positions); those of an empty sentence are its [SEP]."""
        is_sep = ids == self.tokenizer.sep_token_id
        is_special = is_sep | (ids == self.tokenizer.cls_token_id)
        num_seps_before = is_sep.cumsum(-1) - is_sep.long()
        for part in (0, 1):
            in_part = mask & (num_seps_before == part)
            words = in_part & ~is_special
            yield torch.where(words.any(-1, keepdim=True), words, in_part & is_sep)


class BiEncoder(ConditionalEncoder, kind="bi"):
    """An encoder that reads each sentence with the condition, in a template or as a pair of texts, and returns the cosine."""

    parts = 2

    def read(self, first: Sequence[str], second: Sequence[str], conditions: Sequence[str]) -> tuple[list[Parts], int]:
        """Tokenize n pairs to two inputs each (``Encoding.input``)."""
        (first_ids, first_cut), (second_ids, second_cut) = (
            self._tokenize_with_conditions(sentences, conditions) for sentences in (first, second)
        )
        return list(zip(first_ids, second_ids, strict=True)), sum(a or b for a, b in zip(first_cut, second_cut, strict=True))

    def _tokenize_with_conditions(self, sentences: Sequence[str], conditions: Sequence[str]) -> tuple[list[Ids], list[bool]]:
        """Tokenize sentences by themselves, each with its condition as a pair of texts, or in the rendered template."""
        if self.encoding.reads == "sentences":
            return self._tokenize_single(sentences)
        if self.encoding.input == "pair":
            return self._tokenize_pairs(sentences, conditions)
        num_masks = NUM_MASKS if self.encoding.pooler == "masks" else 0
        tokenizer = PromptTokenizer(self.tokenizer, get_template(self.encoding.template), self.encoding.max_length, num_masks)
        prompts = tokenizer(sentences, conditions)
        return [prompt.ids for prompt in prompts], [prompt.is_cut for prompt in prompts]

    def _tokenize_pairs(self, sentences: Sequence[str], conditions: Sequence[str]) -> tuple[list[Ids], list[bool]]:
        """Tokenize to [CLS] sentence [SEP] condition [SEP], with as many [SEP] in the middle as the tokenizer uses in pairs."""
        num_special = self.tokenizer.num_special_tokens_to_add(pair=True)
        pairs: list[Ids] = []
        is_cut: list[bool] = []
        inputs = zip(self._tokenize(sentences), self._tokenize(conditions), conditions, strict=True)
        for sentence_ids, condition_ids, condition in inputs:
            room = self.encoding.max_length - num_special - len(condition_ids)
            if room < 1:
                raise self._make_length_error(condition)
            pairs.append(self._join(sentence_ids[:room], condition_ids, num_seps=num_special - 2))
            is_cut.append(len(sentence_ids) > room)
        return pairs, is_cut

    def score(self, features: Sequence[Tensor]) -> Tensor:
        """Compute the cosine of each pair, shape (n,)."""
        first, second = (self.transform(feature).float() for feature in features)
        return F.cosine_similarity(first, second, dim=-1)


class TriEncoder(ConditionalEncoder, kind="tri"):
    """An encoder that reads sentences and condition separately, combines the condition with each, and returns the cosine."""

    parts = 3

    def __init__(self, backbone: Any, tokenizer: PreTrainedTokenizerBase, encoding: Encoding) -> None:
        """Add the condition's map and, for "mlp", the combining map to a backbone; see ``ConditionalEncoder`` for the rest."""
        super().__init__(backbone, tokenizer, encoding)
        self.condition = nn.Sequential(nn.Dropout(self._dropout), nn.Linear(self.width, self.width))
        self.both = self._make_mlp(2 * self.width) if encoding.combine == "mlp" else None

    def read(self, first: Sequence[str], second: Sequence[str], conditions: Sequence[str]) -> tuple[list[Parts], int]:
        """Tokenize n pairs to three inputs each."""
        first_ids, first_cut = self._tokenize_single(first)
        second_ids, second_cut = self._tokenize_single(second)
        condition_ids, condition_cut = self._tokenize_single(conditions)
        if any(condition_cut):
            raise self._make_length_error(conditions[condition_cut.index(True)])
        num_cut = sum(a or b for a, b in zip(first_cut, second_cut, strict=True))
        return list(zip(first_ids, second_ids, condition_ids, strict=True)), num_cut

    def score(self, features: Sequence[Tensor]) -> Tensor:
        """Compute the cosine of each pair's sentences, both combined with the condition; shape (n,)."""
        condition = self.condition(features[2])
        first, second = (self._combine(self.transform(feature), condition).float() for feature in features[:2])
        return F.cosine_similarity(first, second, dim=-1)

    def _extract_features(self, input_ids: Tensor, attention_mask: Tensor) -> Sequence[Tensor]:
        """Read each distinct text once: both rows of a pair have the same sentences, and conditions repeat."""
        border = len(input_ids) // self.parts * 2
        first, second = self._read_once(input_ids[:border], attention_mask[:border]).chunk(2)
        return first, second, self._read_once(input_ids[border:], attention_mask[border:])

    def _read_once(self, ids: Tensor, mask: Tensor) -> Tensor:
        columns = mask.any(0)
        ids, mask = ids[:, columns], mask[:, columns]
        distinct_ids, distinct_index = ids.unique(dim=0, return_inverse=True)
        rows = torch.arange(len(ids), device=ids.device)
        first_rows = rows.new_full((len(distinct_ids),), len(ids)).scatter_reduce(0, distinct_index, rows, "amin")
        return self._pool(distinct_ids, mask[first_rows])[distinct_index]

    def _combine(self, sentence: Tensor, condition: Tensor) -> Tensor:
        if self.both is None:
            return sentence * condition
        combined: Tensor = self.both(torch.cat([sentence, condition], -1))
        return combined
