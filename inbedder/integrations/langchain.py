"""An adapter for LangChain: embeddings under an instruction, and a compressor that keeps the most relevant documents.

InMemoryVectorStore.from_texts(texts, InstructedEmbeddings("What is the complaint about?")).similarity_search("battery")
ContextualCompressionRetriever(base_retriever=retriever, base_compressor=InstructedCompressor(instruction="@topic"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import load_shared
from inbedder.option_types import FormatKwargs
from inbedder.search.model_vectors import score_texts

try:
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.embeddings import Embeddings
    from pydantic import BeforeValidator, ConfigDict, Field
except ImportError as error:
    raise MissingExtraError("langchain-core") from error


class InstructedEmbeddings(Embeddings):
    """Embeddings of documents and queries, of length 1.

    Example:
        >>> from inbedder.integrations.langchain import InstructedEmbeddings
        >>> len(InstructedEmbeddings("What is the complaint about?").embed_query("The box was crushed"))
        384
    """

    def __init__(
        self,
        instruction: str | None = None,
        model: str | InBedder = "mini",
        *,
        query_instruction: str | None = None,
        batch_size: int = 32,
    ) -> None:
        """Load the model.

        Args:
            instruction: The question about every document; None takes the model's own document prompt.
            model: An ``InBedder`` or the name of one.
            query_instruction: The question about queries; None takes ``instruction``, or the model's own query prompt.
            batch_size: Batch size.
        """
        self.instruction = instruction
        self.query_instruction = instruction if query_instruction is None else query_instruction
        self.model = load_shared(model)
        self.batch_size = batch_size

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed n documents."""
        options: FormatKwargs = {
            "batch_size": self.batch_size,
            "normalize_embeddings": True,
            "precision": "float32",
            "show_progress_bar": False,
        }
        return list(self.model.encode_document(texts, self.instruction, **options).tolist())

    def embed_query(self, text: str) -> list[float]:
        """Embed a query."""
        return list(
            self.model.encode_query(text, self.query_instruction, normalize_embeddings=True, precision="float32").tolist()
        )


class InstructedCompressor(BaseDocumentCompressor):
    """A compressor that keeps the documents most similar to the query under an instruction.

    Example:
        >>> from langchain_core.documents import Document
        >>> from inbedder.integrations.langchain import InstructedCompressor
        >>> documents = [Document("Great price"), Document("The box was crushed")]
        >>> compressor = InstructedCompressor(instruction="What is the complaint about?", k=1)
        >>> compressor.compress_documents(documents, "My parcel was damaged")[0].page_content
        'The box was crushed'
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", validate_default=True)
    instruction: str
    """The question about query and documents, or ``@name``."""
    model: Annotated[Any, BeforeValidator(lambda model: load_shared(model))] = "mini"
    """An ``InBedder`` or the name of one."""
    k: int = Field(default=10, ge=1)
    """Maximum number of documents to keep."""

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> list[Document]:
        """Return copies of the k best documents, the best first, with ``relevance_score`` in their metadata."""
        if not documents:
            return []
        scores = score_texts(self.model, query, [document.page_content for document in documents], self.instruction)
        best = sorted(zip(scores.tolist(), documents, strict=True), key=lambda pair: -pair[0])[: self.k]
        return [
            document.model_copy(update={"metadata": {**document.metadata, "relevance_score": score}}) for score, document in best
        ]
