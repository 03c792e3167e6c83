"""Encoders of conditional similarity: how alike are two sentences under a condition (C-STS, Deshpande et al. 2023, section 4.1).

With f a BERT-like backbone and its pooler, s1 and s2 the sentences, c the condition, t the MLP (or nothing)::

    cross   y = w . t(f([CLS] s1 [SEP] s2 [SEP] c [SEP])) + b        a scalar
            y = w . (t(f1) / |t(f1)| * t(f2) / |t(f2)|) + b          pooler "spans": f1, f2 the means over s1 and over s2
    bi      y = cos(t(f(c: s1)), t(f(c: s2)))                        "c: s" is the template's; input "pair", the authors':
            f([CLS] s [SEP] c [SEP])
    tri     y = cos(g(s1, c), g(s2, c))
            g(s, c) = t(f(s)) * W f(c)                               combine "hadamard"
            g(s, c) = act(V [t(f(s)), W f(c)])                       combine "mlp"

The bi- and the tri-encoder are symmetric in the two sentences; the cross-encoder reads them in order and is not. W, a linear map
of the condition, is in the authors' code; the paper does not tell. Pooler "spans" is ours: with w = 1 at the start, the scalar
begins as a cosine, which few rows can turn into a rating. A backbone reads no segment ids, as in the authors' code, which was run
on RoBERTa alone. ``encoding`` says what a saved model looks like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inbedder.conditional.config import NUM_MASKS, Encoding
from inbedder.pooling import masked_mean
from inbedder.prompting.templates import get_template
from inbedder.prompting.tokenization import PromptTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

from inbedder.conditional.pair_encoder import ConditionalEncoder, Ids, Parts, collate

__all__ = ["BiEncoder", "ConditionalEncoder", "CrossEncoder", "TriEncoder", "collate"]


class CrossEncoder(ConditionalEncoder, kind="cross"):
    """Sentences and condition in one input, read in order; a scalar comes out (the cosine's bounds do not hold for it)."""

    parts = 1

    def __init__(self, backbone: Any, tokenizer: PreTrainedTokenizerBase, encoding: Encoding) -> None:
        """Put a scalar head on a backbone; arguments and errors as for ``ConditionalEncoder``."""
        super().__init__(backbone, tokenizer, encoding)
        linear = nn.Linear(self.width, 1)
        if encoding.pooler == "spans":
            nn.init.ones_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.scalar = nn.Sequential(nn.Dropout(self._dropout), linear)

    def read(self, first: Sequence[str], second: Sequence[str], conditions: Sequence[str]) -> tuple[list[Parts], int]:
        """[CLS] sentence1 [SEP] sentence2 [SEP] condition [SEP], the longer sentence cut first."""
        if self.encoding.reads == "condition":
            alone, cut = self._alone(conditions)
            return [(ids,) for ids in alone], sum(cut)
        texts = [self._plain(first), self._plain(second)]
        plain_conditions = self._plain(conditions) if self.encoding.reads == "all" else [None] * len(first)
        rows: list[Parts] = []
        cuts = 0
        for text, other, condition, written in zip(*texts, plain_conditions, conditions, strict=True):
            behind = [] if condition is None else [condition]
            room = self.encoding.max_length - 3 - sum(len(part) + 1 for part in behind)
            if room < 2:
                raise self._too_long(written)
            kept = min(len(text), max(room - len(other), (room + 1) // 2))
            rows.append((self._joined(text[:kept], other[: room - kept], *behind),))
            cuts += len(text) + len(other) > room
        return rows, cuts

    def score(self, features: Sequence[Tensor]) -> Tensor:
        """The scalar of each pair, shape (n,), from one vector of the whole input or one of each sentence."""
        vectors = [self.transform(feature) for feature in features]
        joined = vectors[0] if len(vectors) == 1 else F.normalize(vectors[0], dim=-1) * F.normalize(vectors[1], dim=-1)
        scores: Tensor = self.scalar(joined).squeeze(-1)
        return scores

    def _features(self, input_ids: Tensor, attention_mask: Tensor) -> Sequence[Tensor]:
        if self.encoding.pooler != "spans":
            return super()._features(input_ids, attention_mask)
        states = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return [masked_mean(states, span) for span in self._spans(input_ids, attention_mask.bool())]

    def _spans(self, ids: Tensor, mask: Tensor) -> Iterator[Tensor]:
        """Where the two sentences stand, bool, (n, positions) each; an empty one is its [SEP]."""
        ends = ids == self.tokenizer.sep_token_id
        special = ends | (ids == self.tokenizer.cls_token_id)
        before = ends.cumsum(-1) - ends.long()
        for part in (0, 1):
            whole = mask & (before == part)
            words = whole & ~special
            yield torch.where(words.any(-1, keepdim=True), words, whole & ends)


class BiEncoder(ConditionalEncoder, kind="bi"):
    """Each sentence with the condition, as the template puts them or as a pair of texts; the cosine comes out."""

    parts = 2

    def read(self, first: Sequence[str], second: Sequence[str], conditions: Sequence[str]) -> tuple[list[Parts], int]:
        """Two inputs of each pair of sentences (``Encoding.input``)."""
        (left, cut), (right, also) = (self._side(sentences, conditions) for sentences in (first, second))
        return list(zip(left, right, strict=True)), sum(a or b for a, b in zip(cut, also, strict=True))

    def _side(self, sentences: Sequence[str], conditions: Sequence[str]) -> tuple[list[Ids], list[bool]]:
        """The sentences alone, each with its condition as a pair of texts, or in the rendered template."""
        if self.encoding.reads == "sentences":
            return self._alone(sentences)
        if self.encoding.input == "pair":
            return self._paired(sentences, conditions)
        masks = NUM_MASKS if self.encoding.pooler == "masks" else 0
        prompts = PromptTokenizer(self.tokenizer, get_template(self.encoding.template), self.encoding.max_length, masks)
        rows = prompts(sentences, conditions)
        return [row.ids for row in rows], [row.is_cut for row in rows]

    def _paired(self, sentences: Sequence[str], conditions: Sequence[str]) -> tuple[list[Ids], list[bool]]:
        """[CLS] sentence [SEP] condition [SEP], with as many [SEP] in the middle as the tokenizer's own pairs have."""
        special = self.tokenizer.num_special_tokens_to_add(pair=True)
        pairs: list[Ids] = []
        cut: list[bool] = []
        for ids, condition, written in zip(self._plain(sentences), self._plain(conditions), conditions, strict=True):
            room = self.encoding.max_length - special - len(condition)
            if room < 1:
                raise self._too_long(written)
            pairs.append(self._joined(ids[:room], condition, between=special - 2))
            cut.append(len(ids) > room)
        return pairs, cut

    def score(self, features: Sequence[Tensor]) -> Tensor:
        """The cosine of each pair, shape (n,)."""
        left, right = (self.transform(feature).float() for feature in features)
        return F.cosine_similarity(left, right, dim=-1)


class TriEncoder(ConditionalEncoder, kind="tri"):
    """Sentences and condition apart; the condition is combined with each sentence, and the cosine comes out."""

    parts = 3

    def __init__(self, backbone: Any, tokenizer: PreTrainedTokenizerBase, encoding: Encoding) -> None:
        """Put the condition's map, and for "mlp" the combining one, on a backbone; all else as for ``ConditionalEncoder``."""
        super().__init__(backbone, tokenizer, encoding)
        self.condition = nn.Sequential(nn.Dropout(self._dropout), nn.Linear(self.width, self.width))
        self.both = self._mlp(2 * self.width) if encoding.combine == "mlp" else None

    def read(self, first: Sequence[str], second: Sequence[str], conditions: Sequence[str]) -> tuple[list[Parts], int]:
        """Each text on its own."""
        (left, cut), (right, also), (condition_ids, long) = (self._alone(texts) for texts in (first, second, conditions))
        if any(long):
            raise self._too_long(conditions[long.index(True)])
        return list(zip(left, right, condition_ids, strict=True)), sum(a or b for a, b in zip(cut, also, strict=True))

    def score(self, features: Sequence[Tensor]) -> Tensor:
        """The cosine of each pair's sentences, both combined with the condition; shape (n,)."""
        condition = self.condition(features[2])
        left, right = (self._combined(self.transform(feature), condition).float() for feature in features[:2])
        return F.cosine_similarity(left, right, dim=-1)

    def _features(self, input_ids: Tensor, attention_mask: Tensor) -> Sequence[Tensor]:
        """Both rows of a pair share their sentences and conditions come again and again, so each distinct text is read once."""
        at = len(input_ids) // self.parts * 2
        first, second = self._read_once(input_ids[:at], attention_mask[:at]).chunk(2)
        return first, second, self._read_once(input_ids[at:], attention_mask[at:])

    def _read_once(self, ids: Tensor, mask: Tensor) -> Tensor:
        used = mask.any(0)
        ids, mask = ids[:, used], mask[:, used]
        distinct, place = ids.unique(dim=0, return_inverse=True)
        rows = torch.arange(len(ids), device=ids.device)
        first = rows.new_full((len(distinct),), len(ids)).scatter_reduce(0, place, rows, "amin")
        return self._pooled(distinct, mask[first])[place]

    def _combined(self, sentence: Tensor, condition: Tensor) -> Tensor:
        if self.both is None:
            return sentence * condition
        both: Tensor = self.both(torch.cat([sentence, condition], -1))
        return both
