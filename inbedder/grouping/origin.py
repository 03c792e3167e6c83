"""Where a grouping's vectors come from: model, settings, question. Vectors of another origin cannot be compared with them."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from inbedder.backbones.revision import settings_hash
from inbedder.embedder import InBedder
from inbedder.errors import InbedderError, InputError, TextCutWarning, shown
from inbedder.options import Reencoding
from inbedder.prompting import PromptTemplate
from inbedder.vectors import Vectors, unit

Instruction = str | list[str] | None
"""What is asked: one question, several wordings of it, or nothing."""
OPENED_WITH = (
    *("backbone", "pooling", "layer", "max_length", "truncation_side", "max_new_tokens", "mask_length", "quantization"),
    "subtract_instruction",
    "add_generic",
)
"""Settings that ``InBedder`` takes by the same name."""
BEFORE = {"add_generic": False}
"""What groupings of before, which do not say it, were made with."""
CURE = "Leave the model out to load the one that it was made with, or group again."


@dataclass(frozen=True)
class Origin:
    """All that decides the vector of a text."""

    model: str
    """What the user calls the model."""
    revision: str
    """What identifies its weights."""
    settings: dict[str, Any]
    """How it is read: pooling, layer, template, lengths, and a hash of its tokenizer and configuration."""
    instruction: Instruction
    """What it is asked."""
    namer: str = "words"
    """What named the groups (``naming.name_of``)."""

    @classmethod
    def of(cls, embedder: InBedder, instruction: Instruction, namer: str = "words") -> Origin:
        """Take down a loaded model.

        Args:
            embedder: The model.
            instruction: What it is asked.
            namer: What named the groups.

        Returns:
            Its origin.
        """
        settings = {
            "backbone": embedder.backbone.kind,
            "files": settings_hash(embedder.backbone),
            "pooling": embedder.pooling,
            "layer": embedder.layer,
            "template": asdict(embedder.template),
            "max_length": embedder.tokenizer.max_length,
            "truncation_side": embedder.tokenizer.truncation_side,
            "max_new_tokens": embedder.sampling.max_new_tokens,
            "mask_length": embedder.backbone.mask_length,
            "quantization": embedder.quantization,
            "subtract_instruction": embedder.subtract_instruction,
            "add_generic": embedder.add_generic,
            "beside": "none" if embedder.beside is None else embedder.beside.name,
            "reencoding": asdict(embedder.reencoding) if embedder.pooling == "re-enc" else None,
        }
        return cls(embedder.name, embedder.revision, settings, instruction, namer)

    def open(self, name: str | None = None, **options: Any) -> InBedder:
        """Load the model as it was.

        Args:
            name: Where it lies now; None is where it was.
            **options: Keyword arguments of ``InBedder`` that decide no vector: cache, cache_size, device, dtype.

        Returns:
            The model.

        Raises:
            ModelError: When it cannot be loaded.
            InputError: When it is another, or has changed.
        """
        try:
            how = {setting: (BEFORE | self.settings)[setting] for setting in OPENED_WITH}
            how["beside"] = self.settings.get("beside")  # groupings of before know none
            how["mask_length"] = how["mask_length"] or None  # 0 of models without masks
            template = PromptTemplate(**self.settings["template"])
            drawn = self.settings["reencoding"] and Reencoding(**self.settings["reencoding"])
        except (KeyError, TypeError) as error:
            raise InputError(f"The settings of {shown(self.model)} in the grouping are damaged ({error!r}).") from error
        try:
            embedder = InBedder(name or self.model, template=template, reencoding=drawn, **how, **options)
        except InbedderError as error:
            if name in (None, self.model):
                raise
            raise InputError(f"{self._made_with}, and {shown(name)} cannot be read like it. {CURE}") from error
        self.check(embedder)
        return embedder

    def check(self, embedder: InBedder) -> None:
        """Refuse a model whose vectors cannot be compared with the grouping's.

        Args:
            embedder: A loaded model.

        Raises:
            InputError: When it is another, or is read in another way.
        """
        found = Origin.of(embedder, self.instruction)
        if found.revision != self.revision:
            other = f"this is {shown(found.model)} (revision {found.revision})"
            raise InputError(f"{self._made_with}, and {other}: their vectors cannot be compared. {CURE}")
        settings = BEFORE | self.settings
        names = [name for name in settings if settings[name] != found.settings.get(name)]
        if names:
            pairs = (f"{name} was {shown(settings[name])} and is {shown(found.settings.get(name))}" for name in names)
            raise InputError(f"{self._made_with}, read in another way: {'; '.join(pairs)}. {CURE}")

    @property
    def shared(self) -> str:
        """The same for groupings that one loaded model serves."""
        return json.dumps([self.model, self.revision, self.settings], sort_keys=True)

    @property
    def _made_with(self) -> str:
        return f"The grouping was made with {shown(self.model)} (revision {self.revision})"

    def encode(self, embedder: InBedder, texts: list[str], **options: Any) -> Vectors:
        """Vectors of texts, as the grouping's were made.

        Args:
            embedder: The model.
            texts: n texts.
            **options: Keyword arguments of ``InBedder.encode``.

        Returns:
            float32, shape (n, d), of length 1: of several wordings the mean of their vectors.
        """
        wordings = self.instruction if isinstance(self.instruction, list) else [self.instruction]
        vectors: Vectors = unit(np.mean([unit(embedder.encode(texts, wording, **options)) for wording in wordings], axis=0))
        return vectors

    def answer(self, embedder: InBedder, texts: list[str], **options: Any) -> list[str]:
        """Answers to texts.

        Args:
            embedder: The model.
            texts: n texts.
            **options: Keyword arguments of ``InBedder.answer``.

        Returns:
            n strings; of several wordings the answers to the first; empty ones of a model that does not answer.
        """
        if not embedder.backbone.answers:
            return [""] * len(texts)
        first = self.instruction[0] if isinstance(self.instruction, list) else self.instruction
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TextCutWarning)  # encode said so already
            return [str(answer) for answer in embedder.answer(texts, first, **options)]
