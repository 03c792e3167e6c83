"""For KeyBERT: an embedding backend under an instruction.

KeyBERT(model=InstructedBackend("What is the complaint about?")).extract_keywords(text)

``KeyBERT(model=InBedder())`` works too, without an instruction.
"""

from __future__ import annotations

from collections.abc import Sequence

from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError
from inbedder.integrations.loading import loaded
from inbedder.vectors import Vectors

try:
    from keybert.backend import BaseEmbedder
except ImportError as error:
    raise MissingExtraError("keybert", "keybert") from error


class InstructedBackend(BaseEmbedder):
    """Embeds documents and candidate words under one instruction, so that words near to what is asked are found."""

    def __init__(self, instruction: str | None = None, model: str | InBedder = "mini") -> None:
        """Take a model.

        Args:
            instruction: What is asked of documents and words, as ``InBedder.encode`` takes it.
            model: An ``InBedder`` or the name of one.
        """
        super().__init__(loaded(model))
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
