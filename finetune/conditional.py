"""Encoders of conditional similarity: how alike are two sentences under a condition (C-STS, Deshpande et al. 2023, section 4.1).

With f a BERT-like backbone and its pooler, s1 and s2 the sentences, c the condition, t the MLP (or nothing)::

    cross   y = w . t(f([CLS] s1 [SEP] s2 [SEP] c [SEP])) + b        a scalar
            y = w . (t(f1) / |t(f1)| * t(f2) / |t(f2)|) + b          pooler "spans": f1, f2 the means over s1 and over s2
    bi      y = cos(t(f(c: s1)), t(f(c: s2)))                        "c: s" is the template's
    tri     y = cos(g(s1, c), g(s2, c))
            g(s, c) = t(f(s)) * W f(c)                               combine "hadamard"
            g(s, c) = act(V [t(f(s)), W f(c)])                       combine "mlp"

The bi- and the tri-encoder are symmetric in the two sentences; the cross-encoder reads them in order and is not. W, a linear map
of the condition, is in the authors' code; the paper does not tell. Pooler "spans" is ours: with w = 1 at the start, the scalar
begins as a cosine, which few rows can turn into a rating. ``conditional_encoding`` says what a saved model looks like.
"""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from finetune.conditional_encoding import Encoding, broadcast, load_parts, place_of, save_modules, write_json
from inbedder.backbones.hub import PAIRS_FILE
from inbedder.backbones.transformer import pad_id_of, position_limit, tapped
from inbedder.batching import length_sorted_batches, pad, token_budget
from inbedder.errors import InputError, ModelError, TextCutWarning
from inbedder.pooling import masked_mean
from inbedder.prompting import get_template
from inbedder.tokenization import PromptTokenizer, clean_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HEAD = "head.safetensors"
Ids = NDArray[np.int32]
Parts = tuple[Ids, ...]


class ConditionalEncoder(nn.Module, ABC):
    """What the three encoders share: backbone, pooler, MLP, scoring and the saved folder."""

    parts: int
    """Inputs of the backbone for one pair of sentences."""

    def __init__(self, backbone: Any, tokenizer: PreTrainedTokenizerBase, encoding: Encoding) -> None:
        """Put a head on a backbone.

        Args:
            backbone: As ``load_parts`` gives it.
            tokenizer: Its tokenizer.
            encoding: How it is read.

        Raises:
            ModelError: When max_length is beyond the backbone's, or the pooler asked for is not the backbone's or the encoder's.
        """
        super().__init__()
        if encoding.pooler == "spans" and (encoding.kind != "cross" or encoding.reads == "condition"):
            raise ModelError(
                "The pooler spans compares two sentences in one input: it is the cross-encoder's, where it reads them."
            )
        limit = position_limit(backbone)
        if limit is not None and encoding.max_length > limit:
            raise ModelError(f"The backbone takes at most {limit} tokens; set encoding.max_length={limit} or less.")
        if encoding.pooler == "cls" and getattr(backbone, "pooler", None) is None:
            raise ModelError(
                f"{type(backbone).__name__} has no pooler of its own; set encoding.pooler to cls-before-pooler or mean."
            )
        self.backbone, self.tokenizer, self.encoding = backbone, tokenizer, encoding
        self.width = int(backbone.config.hidden_size)
        self.layers = int(backbone.config.num_hidden_layers)
        self.transform: nn.Module = self._mlp(self.width) if encoding.transform else nn.Identity()

    def _mlp(self, width: int) -> nn.Sequential:
        from transformers.activations import ACT2FN

        config = self.backbone.config
        activation = getattr(config, "hidden_act", None) or "gelu"
        return nn.Sequential(nn.Dropout(self._dropout), nn.Linear(width, self.width), ACT2FN[activation])

    @property
    def _dropout(self) -> float:
        return float(getattr(self.backbone.config, "hidden_dropout_prob", 0.1))

    @staticmethod
    def of_base(name: str, encoding: Encoding) -> ConditionalEncoder:
        """A new encoder on a pretrained backbone; its head is random.

        Args:
            name: As for ``load_parts``.
            encoding: Its kind and settings.

        Returns:
            The encoder, in training mode.

        Raises:
            ModelError: When the backbone cannot be loaded or does not fit.
        """
        return KINDS[encoding.kind](*load_parts(name), encoding).train()

    @staticmethod
    def load(folder: Path | str, device: str | None = None) -> ConditionalEncoder:
        """Load a trained encoder.

        Args:
            folder: What ``inbedder finetune`` with ``method: conditional`` made.
            device: A torch device; None takes the GPU where there is one.

        Returns:
            The encoder, in evaluation mode.

        Raises:
            ModelError: When the folder holds none.
        """
        folder = Path(folder)
        try:
            settings = json.loads((folder / PAIRS_FILE).read_text(encoding="utf-8"))["encoding"]
            encoding = Encoding(**settings | {"scaled": tuple(settings["scaled"])})
            encoder = KINDS[encoding.kind](*load_parts(str(place_of(folder, encoding))), encoding)
            head = load_file(folder / HEAD) if (folder / HEAD).is_file() else {}
            missing, unexpected = encoder.load_state_dict(head, strict=False)
            gaps = [*(name for name in missing if not name.startswith("backbone.")), *unexpected]
            if gaps:
                raise ValueError(f"{HEAD} does not fit: {', '.join(gaps)}")
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise ModelError(
                f"{folder} holds no conditional encoder ({error}). Train one: inbedder finetune finetune/recipes/csts-bi.yaml"
            ) from error
        return encoder.to(device or ("cuda" if torch.cuda.is_available() else "cpu")).eval()

    def save(self, folder: Path | str, about: dict[str, Any] | None = None) -> None:
        """Write the encoder: safetensors and json alone.

        Args:
            folder: Where; it exists.
            about: What else ``conditional.json`` shall hold, such as the recipe.
        """
        folder = Path(folder)
        place = place_of(folder, self.encoding)
        self.backbone.save_pretrained(place)
        self.tokenizer.save_pretrained(place)
        head = {name: one.contiguous() for name, one in self.state_dict().items() if not name.startswith("backbone.")}
        if head:
            save_file(head, folder / HEAD)
        if self.encoding.is_plain:
            save_modules(folder, self.width, self.encoding)
        write_json(folder / PAIRS_FILE, {"encoding": asdict(self.encoding), **(about or {})})

    @abstractmethod
    def read(self, first: Sequence[str], second: Sequence[str], conditions: Sequence[str]) -> tuple[list[Parts], int]:
        """Tokenize n pairs: the token ids of each one's parts, and how many had to be cut."""

    @abstractmethod
    def score(self, features: Sequence[Tensor]) -> Tensor:
        """Scores of n pairs from the pooled vectors of their parts, each of shape (n, d)."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Score a batch.

        Args:
            input_ids: All first parts, then all second ones, and so on; shape (parts * n, positions).
            attention_mask: bool, of the same shape.

        Returns:
            float32, shape (n,).
        """
        return self.score(self._features(input_ids, attention_mask)).float()

    def _features(self, input_ids: Tensor, attention_mask: Tensor) -> Sequence[Tensor]:
        return self._pooled(input_ids, attention_mask).chunk(self.parts)

    def _pooled(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        pooler = self.encoding.pooler
        other = {"mean-first-last": 0, "mean-top-two": self.layers - 1}.get(pooler)
        with ExitStack() as stack:
            tap = None if other is None else stack.enter_context(tapped(self.backbone, other, self.layers))
            output = self.backbone(input_ids=input_ids, attention_mask=attention_mask)
        if pooler == "cls":
            return output.pooler_output.float()  # type: ignore[no-any-return]
        states = output.last_hidden_state
        if pooler == "cls-before-pooler":
            return states[:, 0].float()  # type: ignore[no-any-return]
        if tap is not None:
            states = (states + tap[0]) / 2
        return masked_mean(states, attention_mask.bool())

    @torch.inference_mode()
    def similarity(
        self,
        sentence1: str | Sequence[str],
        sentence2: str | Sequence[str],
        *,
        condition: str | Sequence[str] | None = None,
        batch_size: int = 32,
    ) -> Any:
        """How alike sentences are under a condition.

        Args:
            sentence1: One sentence or n.
            sentence2: One sentence or n; texts may be empty.
            condition: One for all pairs, or one a pair; None only where the model was trained on sentences alone.
            batch_size: Most pairs in one pass.

        Returns:
            float32, shape (n,), or a float where all are single strings: the cosine, or the cross-encoder's scalar. On the scale
            of the ratings it is 1 + 4 * (score - low) / (high - low), with (low, high) = ``encoding.scaled``.

        Raises:
            InputError: When a text is not a string, numbers of texts differ, or the condition is missing or too long.
        """
        if condition is None and self.encoding.reads != "sentences":
            raise InputError("Give condition=..., the respect in which the sentences are compared.")
        given = {"sentence1": sentence1, "sentence2": sentence2, "condition": "" if condition is None else condition}
        columns = broadcast(given)
        rows, cut = self.read(*columns) if columns[0] else ([], 0)
        if cut:
            warnings.warn(
                TextCutWarning(f"{cut} of {len(rows)} pairs were cut to {self.encoding.max_length} tokens.", cut), stacklevel=3
            )
        self.eval()
        scores = np.empty(len(rows), dtype=np.float32)
        device = next(self.parameters()).device
        lengths = [max(map(len, parts)) for parts in rows]
        for places in length_sorted_batches(lengths, batch_size, token_budget() // self.parts):
            ids, mask = collate([rows[place] for place in places], self.tokenizer)
            scores[places] = self(ids.to(device), mask.to(device)).cpu().numpy()
        return float(scores[0]) if all(isinstance(one, str) for one in given.values()) else scores

    def _plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts without special tokens, those written in a text taken as plain characters."""
        cleaned = [clean_text(text) for text in texts]
        encoded = self.tokenizer(cleaned, add_special_tokens=False, split_special_tokens=True, truncation=False, verbose=False)
        return [list(ids) for ids in encoded["input_ids"]]

    def _joined(self, *texts: Sequence[int]) -> Ids:
        """[CLS] one [SEP] another [SEP]."""
        cls, sep = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        return np.asarray([cls, *(token for text in texts for token in (*text, sep))], dtype=np.int32)

    def _alone(self, texts: Sequence[str]) -> tuple[list[Ids], list[bool]]:
        room = self.encoding.max_length - 2
        found = self._plain(texts)
        return [self._joined(ids[:room]) for ids in found], [len(ids) > room for ids in found]

    def _too_long(self, condition: str) -> InputError:
        limit = self.encoding.max_length
        return InputError(
            f"The condition {condition[:60]!r} leaves no room in {limit} tokens: shorten it, or raise encoding.max_length."
        )


class CrossEncoder(ConditionalEncoder):
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
        asked = self._plain(conditions) if self.encoding.reads == "all" else [None] * len(first)
        rows: list[Parts] = []
        cuts = 0
        for one, other, condition, written in zip(*texts, asked, conditions, strict=True):
            behind = [] if condition is None else [condition]
            room = self.encoding.max_length - 3 - sum(len(part) + 1 for part in behind)
            if room < 2:
                raise self._too_long(written)
            kept = min(len(one), max(room - len(other), (room + 1) // 2))
            rows.append((self._joined(one[:kept], other[: room - kept], *behind),))
            cuts += len(one) + len(other) > room
        return rows, cuts

    def score(self, features: Sequence[Tensor]) -> Tensor:
        """The scalar of each pair, shape (n,), from one vector of the whole input or one of each sentence."""
        vectors = [self.transform(one) for one in features]
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


class BiEncoder(ConditionalEncoder):
    """Each sentence with the condition, as the template puts them; the cosine comes out."""

    parts = 2

    def read(self, first: Sequence[str], second: Sequence[str], conditions: Sequence[str]) -> tuple[list[Parts], int]:
        """The rendered template of each sentence, or the sentences alone."""
        if self.encoding.reads == "sentences":
            (left, cut), (right, also) = self._alone(first), self._alone(second)
            return list(zip(left, right, strict=True)), sum(a or b for a, b in zip(cut, also, strict=True))
        prompts = PromptTokenizer(self.tokenizer, get_template(self.encoding.template), self.encoding.max_length)
        sides = [prompts(first, conditions), prompts(second, conditions)]
        return [(a.ids, b.ids) for a, b in zip(*sides, strict=True)], sum(a.cut or b.cut for a, b in zip(*sides, strict=True))

    def score(self, features: Sequence[Tensor]) -> Tensor:
        """The cosine of each pair, shape (n,)."""
        left, right = (self.transform(one).float() for one in features)
        return F.cosine_similarity(left, right, dim=-1)


class TriEncoder(ConditionalEncoder):
    """Sentences and condition apart; the condition is combined with each sentence, and the cosine comes out."""

    parts = 3

    def __init__(self, backbone: Any, tokenizer: PreTrainedTokenizerBase, encoding: Encoding) -> None:
        """Put the condition's map, and for "mlp" the combining one, on a backbone; all else as for ``ConditionalEncoder``."""
        super().__init__(backbone, tokenizer, encoding)
        self.condition = nn.Sequential(nn.Dropout(self._dropout), nn.Linear(self.width, self.width))
        self.both = self._mlp(2 * self.width) if encoding.combine == "mlp" else None

    def read(self, first: Sequence[str], second: Sequence[str], conditions: Sequence[str]) -> tuple[list[Parts], int]:
        """Each text on its own."""
        (left, cut), (right, also), (asked, long) = (self._alone(texts) for texts in (first, second, conditions))
        if any(long):
            raise self._too_long(conditions[long.index(True)])
        return list(zip(left, right, asked, strict=True)), sum(a or b for a, b in zip(cut, also, strict=True))

    def score(self, features: Sequence[Tensor]) -> Tensor:
        """The cosine of each pair's sentences, both combined with the condition; shape (n,)."""
        condition = self.condition(features[2])
        left, right = (self._combined(self.transform(one), condition).float() for one in features[:2])
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


KINDS: dict[str, type[ConditionalEncoder]] = {"cross": CrossEncoder, "bi": BiEncoder, "tri": TriEncoder}


def collate(rows: Sequence[Parts], tokenizer: PreTrainedTokenizerBase) -> tuple[Tensor, Tensor]:
    """One batch for ``forward``.

    Args:
        rows: The parts of each of n pairs.
        tokenizer: Whose padding is used.

    Returns:
        Ids and mask, shape (parts * n, positions).
    """
    return pad([ids for part in zip(*rows, strict=True) for ids in part], pad_id_of(tokenizer))
