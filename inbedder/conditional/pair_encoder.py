"""What the encoders of conditional similarity share: a backbone and its pooler, an MLP, scoring, saving and loading."""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from inbedder.arguments import check_integer
from inbedder.backbones.file_checks import check_sums
from inbedder.backbones.hub import PAIRS_FILE
from inbedder.backbones.transformer import capture_layer, find_position_limit, get_pad_id
from inbedder.backbones.weights import resolve_device
from inbedder.conditional.config import (
    Encoding,
    broadcast,
    find_backbone_folder,
    is_decoder,
    load_parts,
    save_modules,
    write_json,
)
from inbedder.errors import InputError, ModelError, TextCutWarning
from inbedder.pooling import masked_mean
from inbedder.prompting.batching import get_token_budget, pad, split_into_batches
from inbedder.prompting.tokenization import clean_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HEAD_FILE = "head.safetensors"
Ids = NDArray[np.int32]
Parts = tuple[Ids, ...]


class ConditionalEncoder(nn.Module, ABC):
    """What the three encoders share: backbone, pooler, MLP, scoring and the saved folder."""

    kinds: ClassVar[dict[str, type[ConditionalEncoder]]] = {}
    """The encoders by what ``Encoding.kind`` calls them."""

    def __init_subclass__(cls, kind: str) -> None:
        ConditionalEncoder.kinds[kind] = cls

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
        if is_decoder(backbone.config):
            _check_decoder(encoding)
        if encoding.pooler == "masks" and (encoding.kind, encoding.input, encoding.reads) != ("bi", "template", "all"):
            raise ModelError("The pooler masks reads an answer behind a prompt: it is the bi-encoder's, of a template.")
        limit = find_position_limit(backbone)
        if limit is not None and encoding.max_length > limit:
            raise ModelError(f"The backbone takes at most {limit} tokens; set encoding.max_length={limit} or less.")
        if encoding.pooler == "pooler" and getattr(backbone, "pooler", None) is None:
            raise ModelError(f"{type(backbone).__name__} has no pooler of its own; set encoding.pooler to cls or mean.")
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
        return ConditionalEncoder.kinds[encoding.kind](*load_parts(name), encoding).train()

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
        check_sums(str(folder))
        try:
            settings = json.loads((folder / PAIRS_FILE).read_text(encoding="utf-8"))["encoding"]
            encoding = Encoding(**settings | {"scaled": tuple(settings["scaled"])})
            encoder = ConditionalEncoder.kinds[encoding.kind](*load_parts(str(find_backbone_folder(folder, encoding))), encoding)
            head = load_file(folder / HEAD_FILE) if (folder / HEAD_FILE).is_file() else {}
            missing, unexpected = encoder.load_state_dict(head, strict=False)
            gaps = [*(name for name in missing if not name.startswith("backbone.")), *unexpected]
            if gaps:
                raise ValueError(f"{HEAD_FILE} does not fit: {', '.join(gaps)}")
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise ModelError(
                f"{folder} holds no conditional encoder ({error}). Train one: inbedder finetune finetune/recipes/csts-bi.yaml"
            ) from error
        return encoder.to(resolve_device(device)).eval()

    def save(self, folder: Path | str, about: dict[str, Any] | None = None) -> None:
        """Write the encoder: safetensors and json alone.

        Args:
            folder: Where; it exists.
            about: What else ``conditional.json`` shall hold, such as the recipe.
        """
        folder = Path(folder)
        place = find_backbone_folder(folder, self.encoding)
        self.backbone.save_pretrained(place)
        self.tokenizer.save_pretrained(place)
        head = {name: tensor.contiguous() for name, tensor in self.state_dict().items() if not name.startswith("backbone.")}
        if head:
            save_file(head, folder / HEAD_FILE)
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
        other = {"avg_first_last": 0, "avg_top2": self.layers - 1}.get(pooler)
        backbone, tap = self.backbone, None
        if other is not None:
            backbone, tap = capture_layer(self.backbone, self.backbone, other, self.layers)
        output = backbone(input_ids=input_ids, attention_mask=attention_mask)
        if pooler == "pooler":
            return output.pooler_output.float()  # type: ignore[no-any-return]
        states = output.last_hidden_state
        if pooler in ("cls", "cls_before_pooler"):
            return states[:, 0].float()  # type: ignore[no-any-return]
        if pooler == "masks":
            return masked_mean(states, input_ids == self.tokenizer.mask_token_id)
        if pooler == "last":
            return states[torch.arange(len(states), device=states.device), attention_mask.sum(1) - 1].float()  # type: ignore[no-any-return]
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
            condition: One for all pairs, or one per pair; None only where the model was trained on sentences alone.
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
        batch_size = check_integer("batch_size", batch_size, 1)
        self.eval()
        scores = np.empty(len(rows), dtype=np.float32)
        device = next(self.parameters()).device
        lengths = [max(map(len, parts)) for parts in rows]
        for places in split_into_batches(lengths, batch_size, get_token_budget(device) // self.parts):
            ids, mask = collate([rows[place] for place in places], self.tokenizer)
            scores[places] = self(ids.to(device), mask.to(device)).cpu().numpy()
        return float(scores[0]) if all(isinstance(value, str) for value in given.values()) else scores

    def _plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts without special tokens, those written in a text taken as plain characters."""
        cleaned = [clean_text(text) for text in texts]
        encoded = self.tokenizer(cleaned, add_special_tokens=False, split_special_tokens=True, truncation=False, verbose=False)
        return [list(ids) for ids in encoded["input_ids"]]

    def _joined(self, *texts: Sequence[int], between: int = 1) -> Ids:
        """[CLS] one [SEP] another [SEP], with so many [SEP] between two texts."""
        cls, sep = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        *before, last = texts
        ids = [token for text in before for token in (*text, *[sep] * between)]
        return np.asarray([cls, *ids, *last, sep], dtype=np.int32)

    def _alone(self, texts: Sequence[str]) -> tuple[list[Ids], list[bool]]:
        room = self.encoding.max_length - 2
        found = self._plain(texts)
        return [self._joined(ids[:room]) for ids in found], [len(ids) > room for ids in found]

    def _too_long(self, condition: str) -> InputError:
        limit = self.encoding.max_length
        return InputError(
            f"The condition {condition[:60]!r} leaves no room in {limit} tokens: shorten it, or raise encoding.max_length."
        )


def _check_decoder(encoding: Encoding) -> None:
    """A decoder reads rendered prompts alone, and its last state is the one that has read all."""
    if (encoding.kind, encoding.input, encoding.reads, encoding.pooler) != ("bi", "template", "all", "last"):
        raise ModelError(
            "A decoder has no [CLS] and [SEP]: it can be the bi-encoder of a template, read at its last token. Set "
            "encoding.kind=bi, encoding.input=template, encoding.reads=all and encoding.pooler=last."
        )


def collate(rows: Sequence[Parts], tokenizer: PreTrainedTokenizerBase) -> tuple[Tensor, Tensor]:
    """One batch for ``forward``.

    Args:
        rows: The parts of each of n pairs.
        tokenizer: Whose padding is used.

    Returns:
        Ids and mask, shape (parts * n, positions).
    """
    return pad([ids for part in zip(*rows, strict=True) for ids in part], get_pad_id(tokenizer))
