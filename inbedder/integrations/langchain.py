"""For LangChain: a document compressor that keeps the documents nearest to the query in what is asked.

ContextualCompressionRetriever(base_retriever=retriever, base_compressor=InstructedCompressor(instruction="@topic"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError
from inbedder.search.reading import instructed_scores

try:
    from langchain_core.documents import BaseDocumentCompressor, Document
    from pydantic import ConfigDict, Field
except ImportError as error:
    raise MissingExtraError("langchain-core", "langchain") from error


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
