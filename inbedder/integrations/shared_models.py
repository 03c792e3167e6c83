"""Code that adapters share: models that are loaded once per name, and the backend of BERTopic and KeyBERT."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from inbedder.embedder import InBedder
from inbedder.vectors.vectors import Vectors


def load_shared(model: str | os.PathLike[str] | InBedder, cache: str | os.PathLike[str] | None = None) -> InBedder:
    """Load a model once per name, or return a model that is already loaded.

    Adapters share models this way because other packages copy, clone and pickle their parts.

    Args:
        model: An ``InBedder``, or a bundled model's name, a hub id or a folder.
        cache: A folder that caches vectors; ignored for an ``InBedder``.

    Returns:
        The model.
    """
    return model if isinstance(model, InBedder) else _load_by_name(os.fspath(model), None if cache is None else os.fspath(cache))


@lru_cache(maxsize=4)
def _load_by_name(name: str, cache: str | None) -> InBedder:
    return InBedder(name, cache=cache)


class DocumentBackend:
    """The embedding backend of BERTopic and KeyBERT; adapters list it before the other package's base class."""

    embedding_model: Any

    def __init__(self, instruction: str | None = None, model: str | InBedder = "mini") -> None:
        """Load the model.

        Args:
            instruction: The question about every document, or None.
            model: An ``InBedder`` or the name of one.
        """
        super().__init__(load_shared(model))  # type: ignore[call-arg]  # the other package's base class stores it as embedding_model
        self.instruction = instruction

    def embed(self, documents: Sequence[str], verbose: bool = False) -> Vectors:
        """Embed n documents or words: float32, shape (n, d)."""
        vectors: Vectors = self.embedding_model.encode(
            list(documents), self.instruction, precision="float32", show_progress_bar=verbose
        )
        return vectors
