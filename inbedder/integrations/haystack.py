"""An adapter for Haystack: components that embed texts and documents under an instruction.

pipeline.add_component("embedder", InstructedDocumentEmbedder("What is the complaint about?"))
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import load_shared

try:
    from haystack import Document, component
except ImportError as error:
    raise MissingExtraError("haystack-ai") from error

_FORMAT: dict[str, Any] = {"normalize_embeddings": True, "precision": "float32", "show_progress_bar": False}


@component
class InstructedTextEmbedder:
    """A component that embeds a query: a vector of length 1.

    Example:
        >>> from inbedder.integrations.haystack import InstructedTextEmbedder
        >>> len(InstructedTextEmbedder("What is the complaint about?").run("My parcel was damaged")["embedding"])
        384
    """

    def __init__(self, instruction: str | None = None, model: str = "mini") -> None:
        """Set what a saved pipeline stores; the model is loaded on first use.

        Args:
            instruction: The question about the text, or ``@name``; None takes the model's own query prompt.
            model: The name of a model.
        """
        self.instruction, self.model = instruction, model

    @component.output_types(embedding=list[float])  # type: ignore[untyped-decorator]
    def run(self, text: str) -> dict[str, Any]:
        """Embed one text."""
        return {"embedding": load_shared(self.model).encode_query(text, self.instruction, **_FORMAT).tolist()}


@component
class InstructedDocumentEmbedder:
    """A component that embeds documents by their content: vectors of length 1.

    Example:
        >>> from haystack import Document
        >>> from inbedder.integrations.haystack import InstructedDocumentEmbedder
        >>> embedder = InstructedDocumentEmbedder("What is the complaint about?")
        >>> len(embedder.run([Document(content="The box was crushed")])["documents"][0].embedding)
        384
    """

    def __init__(self, instruction: str | None = None, model: str = "mini", batch_size: int = 32) -> None:
        """Set what a saved pipeline stores; the model is loaded on first use.

        Args:
            instruction: The question about every document, or ``@name``; None takes the model's own document prompt.
            model: The name of a model.
            batch_size: Maximum number of documents in one pass.
        """
        self.instruction, self.model, self.batch_size = instruction, model, batch_size

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Return copies of the documents with embeddings; one without content is embedded as an empty text."""
        texts = [document.content or "" for document in documents]
        vectors = load_shared(self.model).encode_document(texts, self.instruction, batch_size=self.batch_size, **_FORMAT)
        pairs = zip(documents, vectors.tolist(), strict=True)
        return {"documents": [replace(document, embedding=vector) for document, vector in pairs]}
