"""The base class of the encoders of conditional similarity: backbone, pooler, MLP, scoring, saving and loading."""

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
from inbedder.backbones.hub import PAIRS_FILE, ModelFiles
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
from inbedder.models.checksums import check_checksums
from inbedder.prompting.batching import get_token_budget, pad, split_into_batches
from inbedder.prompting.tokenization import clean_text
from inbedder.runtime.user_paths import expand_path
from inbedder.vectors.pooling import masked_mean

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HEAD_FILE = "head.safetensors"
Ids = NDArray[np.int32]
Parts = tuple[Ids, ...]


class ConditionalEncoder(nn.Module, ABC):
    """A model that scores how similar two sentences are under a condition.

    Example:
        >>> from inbedder import ConditionalEncoder
        >>> from inbedder.conditional.config import Encoding
        >>> encoder = ConditionalEncoder.of_base("all-MiniLM-L6-v2", Encoding())  # untrained; load() reads a trained one
        >>> encoder.similarity(["A red car.", "A cat."], "A blue car.", condition="the vehicle").shape
        (2,)
    """

    kinds: ClassVar[dict[str, type[ConditionalEncoder]]] = {}
    """The encoders by ``Encoding.kind``."""

    def __init_subclass__(cls, kind: str) -> None:
        ConditionalEncoder.kinds[kind] = cls

    parts: int
    """Number of inputs of the backbone per pair of sentences."""

    def __init__(self, backbone: Any, tokenizer: PreTrainedTokenizerBase, encoding: Encoding) -> None:
        """Add a head to a backbone.

        Args:
            backbone: A model of ``load_parts``.
            tokenizer: The model's tokenizer.
            encoding: The encoder's settings.

        Raises:
            ModelError: If ``max_length`` exceeds the backbone's limit, or the pooler does not fit the backbone or the encoder.
        """
        super().__init__()
        if encoding.pooler == "spans" and (encoding.kind != "cross" or encoding.reads == "condition"):
            raise ModelError("The pooler spans compares two sentences in one input. Only cross-encoders that read them have it.")
        if is_decoder(backbone.config):
            _check_decoder(encoding)
        if encoding.pooler == "masks" and (encoding.kind, encoding.input, encoding.reads) != ("bi", "template", "all"):
            raise ModelError("The pooler masks reads an answer after a prompt. Only bi-encoders with a template have it.")
        limit = find_position_limit(backbone)
        if limit is not None and encoding.max_length > limit:
            raise ModelError(f"The backbone takes at most {limit} tokens. Set encoding.max_length={limit} or less.")
        if encoding.pooler == "pooler" and getattr(backbone, "pooler", None) is None:
            raise ModelError(f"{type(backbone).__name__} has no pooler of its own. Set encoding.pooler to cls or mean.")
        self.backbone, self.tokenizer, self.encoding = backbone, tokenizer, encoding
        self.width = int(backbone.config.hidden_size)
        self.layers = int(backbone.config.num_hidden_layers)
        self.transform: nn.Module = self._make_mlp(self.width) if encoding.transform else nn.Identity()

    def _make_mlp(self, width: int) -> nn.Sequential:
        from transformers.activations import ACT2FN

        config = self.backbone.config
        activation = getattr(config, "hidden_act", None) or "gelu"
        return nn.Sequential(nn.Dropout(self._dropout), nn.Linear(width, self.width), ACT2FN[activation])

    @property
    def _dropout(self) -> float:
        return float(getattr(self.backbone.config, "hidden_dropout_prob", 0.1))

    @staticmethod
    def of_base(name: str, encoding: Encoding) -> ConditionalEncoder:
        """Create an untrained encoder on a pretrained backbone; its head is random.

        Args:
            name: all-MiniLM-L6-v2, mini, small, a hub id or a folder.
            encoding: The encoder's kind and settings.

        Returns:
            The encoder, in training mode.

        Raises:
            ModelError: If the backbone cannot be loaded or does not fit.

        Example:
            >>> from inbedder import ConditionalEncoder
            >>> from inbedder.conditional.config import Encoding
            >>> type(ConditionalEncoder.of_base("all-MiniLM-L6-v2", Encoding(kind="cross"))).__name__
            'CrossEncoder'
        """
        return ConditionalEncoder.kinds[encoding.kind](*load_parts(name), encoding).train()

    @staticmethod
    def load(folder: Path | str, device: str | None = None) -> ConditionalEncoder:
        """Load a trained encoder.

        Args:
            folder: A folder of ``save``, such as the output of ``inbedder finetune`` with ``method: conditional``.
            device: A torch device; None takes a GPU if there is one.

        Returns:
            The encoder, in evaluation mode.

        Raises:
            ModelError: If the folder does not contain an encoder.

        Example:
            >>> from pathlib import Path
            >>> from inbedder import ConditionalEncoder
            >>> from inbedder.conditional.config import Encoding
            >>> Path("encoder").mkdir()
            >>> ConditionalEncoder.of_base("all-MiniLM-L6-v2", Encoding()).save("encoder")
            >>> ConditionalEncoder.load("encoder").encoding.kind
            'bi'
        """
        folder = expand_path(folder)
        check_checksums(ModelFiles(str(folder)).find)
        try:
            settings = json.loads((folder / PAIRS_FILE).read_text(encoding="utf-8"))["encoding"]
            encoding = Encoding(**settings | {"scaled": tuple(settings["scaled"])})
            encoder = ConditionalEncoder.kinds[encoding.kind](*load_parts(str(find_backbone_folder(folder, encoding))), encoding)
            head = load_file(folder / HEAD_FILE) if (folder / HEAD_FILE).is_file() else {}
            missing, unexpected = encoder.load_state_dict(head, strict=False)
            mismatches = [*(name for name in missing if not name.startswith("backbone.")), *unexpected]
            if mismatches:
                raise ValueError(f"{HEAD_FILE} does not fit: {', '.join(mismatches)}")
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise ModelError(
                f"{folder} contains no conditional encoder ({error}). Train one: inbedder finetune csts-bi"
            ) from error
        return encoder.to(resolve_device(device)).eval()

    def save(self, folder: Path | str, metadata: dict[str, Any] | None = None) -> None:
        """Write the encoder as safetensors and json.

        Args:
            folder: An existing folder.
            metadata: Additional entries of ``conditional.json``, such as the recipe.

        Example:
            >>> from pathlib import Path
            >>> from inbedder import ConditionalEncoder
            >>> from inbedder.conditional.config import Encoding
            >>> Path("saved").mkdir()
            >>> ConditionalEncoder.of_base("all-MiniLM-L6-v2", Encoding()).save("saved")
            >>> Path("saved/conditional.json").is_file()
            True
        """
        folder = expand_path(folder)
        backbone_folder = find_backbone_folder(folder, self.encoding)
        self.backbone.save_pretrained(backbone_folder)
        self.tokenizer.save_pretrained(backbone_folder)
        head = {name: tensor.contiguous() for name, tensor in self.state_dict().items() if not name.startswith("backbone.")}
        if head:
            save_file(head, folder / HEAD_FILE)
        if self.encoding.is_plain:
            save_modules(folder, self.width, self.encoding)
        write_json(folder / PAIRS_FILE, {"encoding": asdict(self.encoding), **(metadata or {})})

    @abstractmethod
    def read(self, first: Sequence[str], second: Sequence[str], conditions: Sequence[str]) -> tuple[list[Parts], int]:
        """Tokenize n pairs: the token ids of each pair's parts, and the number of pairs that were cut."""

    @abstractmethod
    def score(self, features: Sequence[Tensor]) -> Tensor:
        """Score n pairs from the pooled vectors of their parts, each of shape (n, d)."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Score a batch.

        Args:
            input_ids: The first parts of all pairs, then the second ones, and so on; shape (parts * n, positions).
            attention_mask: bool, of the same shape.

        Returns:
            float32, shape (n,).
        """
        return self.score(self._extract_features(input_ids, attention_mask)).float()

    def _extract_features(self, input_ids: Tensor, attention_mask: Tensor) -> Sequence[Tensor]:
        return self._pool(input_ids, attention_mask).chunk(self.parts)

    def _pool(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        pooler = self.encoding.pooler
        second_layer = {"avg_first_last": 0, "avg_top2": self.layers - 1}.get(pooler)
        backbone, captured = self.backbone, None
        if second_layer is not None:
            backbone, captured = capture_layer(self.backbone, self.backbone, second_layer, self.layers)
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
        if captured is not None:
            states = (states + captured[0]) / 2
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
        """Score how similar sentences are under a condition.

        Args:
            sentence1: One sentence or n.
            sentence2: One sentence or n. Sentences may be empty.
            condition: One for all pairs, or one per pair; None only if the model was trained without conditions.
            batch_size: Maximum number of pairs in one pass.

        Returns:
            float32, shape (n,), or a float if all arguments are single strings: the cosine, or the scalar of a cross-encoder.
            Ratings from 1 to 5 are 1 + 4 * (score - low) / (high - low), with (low, high) = ``encoding.scaled``.

        Raises:
            InputError: If a text is not a string, numbers of texts differ, or the condition is missing or too long.

        Example:
            >>> from inbedder import ConditionalEncoder
            >>> from inbedder.conditional.config import Encoding
            >>> encoder = ConditionalEncoder.of_base("all-MiniLM-L6-v2", Encoding())
            >>> 0 < encoder.similarity("A red car.", "A blue car.", condition="the color") < 1
            True
        """
        if condition is None and self.encoding.reads != "sentences":
            raise InputError("Pass condition=..., the aspect in which the sentences are compared.")
        values = {"sentence1": sentence1, "sentence2": sentence2, "condition": "" if condition is None else condition}
        columns = broadcast(values)
        rows, num_cut = self.read(*columns) if columns[0] else ([], 0)
        if num_cut:
            message = f"{num_cut} of {len(rows)} pairs were cut to {self.encoding.max_length} tokens."
            warnings.warn(TextCutWarning(message, num_cut), stacklevel=3)
        batch_size = check_integer("batch_size", batch_size, 1)
        self.eval()
        scores = np.empty(len(rows), dtype=np.float32)
        device = next(self.parameters()).device
        lengths = [max(map(len, parts)) for parts in rows]
        for indices in split_into_batches(lengths, batch_size, get_token_budget(device) // self.parts):
            ids, mask = collate([rows[index] for index in indices], self.tokenizer)
            scores[indices] = self(ids.to(device), mask.to(device)).cpu().numpy()
        return float(scores[0]) if all(isinstance(value, str) for value in values.values()) else scores

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts without special tokens; those written in a text are plain characters."""
        cleaned = [clean_text(text) for text in texts]
        encoded = self.tokenizer(cleaned, add_special_tokens=False, split_special_tokens=True, truncation=False, verbose=False)
        return [list(ids) for ids in encoded["input_ids"]]

    def _join(self, *texts: Sequence[int], num_seps: int = 1) -> Ids:
        """Join texts to [CLS] first [SEP] second [SEP], with this number of [SEP] between two texts."""
        cls, sep = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        *first_texts, last_text = texts
        ids = [token for text in first_texts for token in (*text, *[sep] * num_seps)]
        return np.asarray([cls, *ids, *last_text, sep], dtype=np.int32)

    def _tokenize_single(self, texts: Sequence[str]) -> tuple[list[Ids], list[bool]]:
        """Tokenize texts to [CLS] text [SEP]; return the ids, and whether each text was cut."""
        room = self.encoding.max_length - 2
        tokenized = self._tokenize(texts)
        return [self._join(ids[:room]) for ids in tokenized], [len(ids) > room for ids in tokenized]

    def _make_length_error(self, condition: str) -> InputError:
        limit = self.encoding.max_length
        return InputError(
            f"The condition {condition[:60]!r} leaves no room in {limit} tokens. Shorten it, or raise encoding.max_length."
        )


def _check_decoder(encoding: Encoding) -> None:
    """Check that a decoder reads rendered prompts at their last token, whose state has read everything."""
    if (encoding.kind, encoding.input, encoding.reads, encoding.pooler) != ("bi", "template", "all", "last"):
        raise ModelError(
            "A decoder has no [CLS] and [SEP]. It can only be a bi-encoder with a template, read at its last token: set "
            "encoding.kind=bi, encoding.input=template, encoding.reads=all and encoding.pooler=last."
        )


def collate(rows: Sequence[Parts], tokenizer: PreTrainedTokenizerBase) -> tuple[Tensor, Tensor]:
    """Pad the parts of n pairs to ids and mask, shape (parts * n, positions), for ``forward``."""
    return pad([ids for part in zip(*rows, strict=True) for ids in part], get_pad_id(tokenizer))
