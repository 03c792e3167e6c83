"""Embedders as the runner sees them: with their instruction, without it, or with it in front of the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.tasks.base import fingerprint
from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError
from inbedder.models.bundled import resolve_base, sha256_of

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Embedder:
    """Something that turns texts and instructions into vectors."""

    name: str
    """As tables show it, variant included."""
    revision: str
    """What identifies its weights."""
    encode: Callable[[Sequence[str], str | Sequence[str]], Vectors]
    """Texts and an instruction (or one a text) to vectors, shape (n, d)."""
    prompt: Callable[[str, str], str]
    """What the model reads of a text and an instruction."""
    instructed: bool
    """Whether the instruction should reach the prompt."""


def inbedder_embedders(name: str, *, pooling: str | None = None, layer: int = -1, batch_size: int = 64) -> list[Embedder]:
    """A model of this package, with the instruction and without (which asks ``@generic`` of every text).

    Args:
        name: As ``InBedder`` takes it.
        pooling: As ``InBedder`` takes it.
        layer: As ``InBedder`` takes it.
        batch_size: Most texts in one pass.

    Returns:
        Both variants; they share the weights.
    """
    model = InBedder(name, pooling=pooling, layer=layer)
    reads = (model.template.pattern, model.tokenizer.max_length, model.tokenizer.mask_length, str(model.backbone.model.dtype))
    revision = fingerprint([], [model.revision, *reads])
    name += f", {pooling}" if pooling else ""
    name += f", layer {layer}" if layer != -1 else ""

    def instructed(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        return model.encode(texts, instruction, batch_size=batch_size)

    def generic(texts: Sequence[str], _instruction: str | Sequence[str]) -> Vectors:
        return model.encode(texts, None, batch_size=batch_size)

    return [
        Embedder(name, revision, instructed, model.prompt, instructed=True),
        Embedder(f"{name}, no instruction", revision, generic, lambda text, _: model.prompt(text, None), instructed=False),
    ]


def sentence_transformer_embedders(name: str = "all-MiniLM-L6-v2", batch_size: int = 64) -> list[Embedder]:
    """A sentence-transformers model as a baseline, without the instruction and with it in front of the text.

    Args:
        name: Hub id, folder, or all-MiniLM-L6-v2 for the base of the bundled model.
        batch_size: Most texts in one pass.

    Returns:
        Both variants; they share the weights.

    Raises:
        MissingExtraError: When sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtraError("sentence-transformers", "evaluation") from error
    model = SentenceTransformer(resolve_base(name))
    folder = Path(resolve_base(name))
    files = sorted(folder.rglob("*.safetensors")) if folder.is_dir() else []
    revision = fingerprint([], [name, *(sha256_of(file) for file in files)])

    def plain(texts: Sequence[str], _instruction: str | Sequence[str]) -> Vectors:
        return np.asarray(model.encode(list(texts), batch_size=batch_size, show_progress_bar=False), dtype=np.float32)

    def prepended(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        instructions = [instruction] * len(texts) if isinstance(instruction, str) else instruction
        return plain([f"{one} {text}" for one, text in zip(instructions, texts, strict=True)], "")

    return [
        Embedder(f"{name}, no instruction", revision, plain, lambda text, _: text, instructed=False),
        Embedder(f"{name}, instruction in front", revision, prepended, lambda text, one: f"{one} {text}", instructed=True),
    ]
