"""What adapters share: models by name, each loaded once, since others copy, clone and pickle; a backend that embeds documents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from inbedder.embedder import InBedder
from inbedder.vectors import Vectors


def loaded(model: str | os.PathLike[str] | InBedder, cache: str | os.PathLike[str] | None = None) -> InBedder:
    """A model by name, loaded once, or one that is loaded already.

    Args:
        model: An ``InBedder``, or a name as it takes it.
        cache: A folder that keeps vectors, as ``InBedder`` takes it; for a name.

    Returns:
        The model.
    """
    return model if isinstance(model, InBedder) else _named(os.fspath(model), None if cache is None else os.fspath(cache))


@lru_cache(maxsize=4)
def _named(name: str, cache: str | None) -> InBedder:
    return InBedder(name, cache=cache)


class DocumentBackend:
    """What the embedding backends of BERTopic and KeyBERT share; it stands before their own base class."""

    embedding_model: Any

    def __init__(self, instruction: str | None = None, model: str | InBedder = "mini") -> None:
        """Take a model.

        Args:
            instruction: What is asked of every document, as ``InBedder.encode`` takes it.
            model: An ``InBedder`` or the name of one.
        """
        super().__init__(loaded(model))  # type: ignore[call-arg]  # the other package's base class keeps it as embedding_model
        self.instruction = instruction

    def embed(self, documents: Sequence[str], verbose: bool = False) -> Vectors:
        """Embed documents or words.

        Args:
            documents: n texts.
            verbose: Whether to show a progress bar.

        Returns:
            float32, shape (n, d).
        """
        vectors: Vectors = self.embedding_model.encode(list(documents), self.instruction, show_progress_bar=verbose)
        return vectors
