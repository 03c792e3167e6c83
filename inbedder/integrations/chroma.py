"""An adapter for Chroma: an embedding function under an instruction, registered as "inbedder".

client.create_collection("reviews", embedding_function=InstructedEmbeddingFunction("What is the complaint about?"))
"""

from __future__ import annotations

from typing import Any

from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import load_shared

try:
    from chromadb.api.types import Documents, EmbeddingFunction, Embeddings, Space
    from chromadb.utils.embedding_functions import register_embedding_function
except ImportError as error:
    raise MissingExtraError("chromadb") from error


@register_embedding_function
class InstructedEmbeddingFunction(EmbeddingFunction[Documents]):
    """An embedding function of documents and queries; a collection stores the instruction and the model's name.

    Example:
        >>> from inbedder.integrations.chroma import InstructedEmbeddingFunction
        >>> InstructedEmbeddingFunction("What is the complaint about?")(["The box was crushed"])[0].shape
        (384,)
    """

    def __init__(self, instruction: str | None = None, model: str = "mini") -> None:
        """Load the model.

        Args:
            instruction: The question about documents and queries, ``@name``, or None.
            model: The name of a model.
        """
        self.instruction, self.model = instruction, model
        load_shared(model)

    def __call__(self, input: Documents) -> Embeddings:
        """Embed n texts as vectors of length 1."""
        options: dict[str, Any] = {"normalize_embeddings": True, "precision": "float32", "show_progress_bar": False}
        return list(load_shared(self.model).encode(list(input), self.instruction, **options))

    @staticmethod
    def name() -> str:
        """Return the name under which Chroma stores this function."""
        return "inbedder"

    def default_space(self) -> Space:
        """Return the distance of new collections."""
        return "cosine"

    def get_config(self) -> dict[str, Any]:
        """Return what a collection stores."""
        return {"instruction": self.instruction, "model": self.model}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> InstructedEmbeddingFunction:
        """Load the function of a stored collection."""
        return InstructedEmbeddingFunction(**config)
