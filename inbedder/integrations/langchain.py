"""For LangChain: embeddings under an instruction, and a compressor that keeps the documents nearest in what is asked.

InMemoryVectorStore.from_texts(texts, InstructedEmbeddings("What is the complaint about?")).similarity_search("battery")
ContextualCompressionRetriever(base_retriever=retriever, base_compressor=InstructedCompressor(instruction="@topic"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import loaded
from inbedder.search.model_vectors import instructed_scores

try:
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.embeddings import Embeddings
    from pydantic import ConfigDict, Field
except ImportError as error:
    raise MissingExtraError("langchain-core") from error


class InstructedEmbeddings(Embeddings):
    """Vectors of length 1, of documents and of queries."""

    def __init__(
        self,
        instruction: str | None = None,
        model: str | InBedder = "mini",
        *,
        query_instruction: str | None = None,
        batch_size: int = 32,
    ) -> None:
        """Take a model.

        Args:
            instruction: What is asked of every document; None is the model's own prompt of a document.
            model: An ``InBedder`` or the name of one.
            query_instruction: What is asked of queries; None is what documents are asked, or the model's own prompt of a query.
            batch_size: Most texts in one pass.
        """
        self.instruction = instruction
        self.query_instruction = instruction if query_instruction is None else query_instruction
        self.model = loaded(model)
        self.batch_size = batch_size

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed what is searched through.

        Args:
            texts: n texts.

        Returns:
            n vectors.
        """
        options = {"batch_size": self.batch_size, "normalize_embeddings": True, "show_progress_bar": False}
        return list(self.model.encode_document(texts, self.instruction, **options).tolist())

    def embed_query(self, text: str) -> list[float]:
        """Embed what is searched for.

        Args:
            text: The query.

        Returns:
            Its vector.
        """
        return list(self.model.encode_query(text, self.query_instruction, normalize_embeddings=True).tolist())


class InstructedCompressor(BaseDocumentCompressor):
    """Orders documents by the cosine of query and document under an instruction, and keeps the first."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    instruction: str
    """What is asked of the query and the documents, a question or ``@name``."""
    embedder: Any = Field(default_factory=InBedder)
    """An ``InBedder``."""
    k: int = 10
    """How many documents are kept."""

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> list[Document]:
        """Keep the k best documents.

        Args:
            documents: What a retriever found.
            query: What was searched for.
            callbacks: LangChain's, not used.

        Returns:
            Copies, the best first, with ``relevance_score`` in their metadata.
        """
        if not documents:
            return []
        scores = instructed_scores(self.embedder, query, [document.page_content for document in documents], self.instruction)
        best = sorted(zip(scores.tolist(), documents, strict=True), key=lambda pair: -pair[0])[: self.k]
        return [
            document.model_copy(update={"metadata": {**document.metadata, "relevance_score": score}}) for score, document in best
        ]
