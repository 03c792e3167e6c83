"""For LanceDB: a reranker under an instruction, and an embedding function that is registered as "inbedder".

table.search(vector).rerank(InstructedReranker("What is the complaint about?"), query_string="battery died").to_pandas()
get_registry().get("inbedder").create(name="mini", instruction="What is the complaint about?")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import loaded
from inbedder.search.model_vectors import instructed_scores

try:
    import pyarrow as pa
    from lancedb.embeddings import TextEmbeddingFunction, register
    from lancedb.rerankers import Reranker
except ImportError as error:
    raise MissingExtraError("lancedb", "search") from error

if TYPE_CHECKING:
    from collections.abc import Sequence


class InstructedReranker(Reranker):
    """Orders the results of LanceDB's own searches by what is asked."""

    def __init__(
        self, instruction: str, model: str | InBedder = "mini", column: str = "text", return_score: str = "relevance"
    ) -> None:
        """Load the model.

        Args:
            instruction: What is asked of the query and the texts, a question or ``@name``.
            model: An ``InBedder`` or the name of one.
            column: The results' column of texts.
            return_score: "relevance", or "all" to keep LanceDB's scores too.
        """
        super().__init__(return_score)
        self.instruction, self.column = instruction, column
        self.model = loaded(model)

    def _ordered(self, query: str, results: pa.Table) -> pa.Table:
        if not len(results):
            return self._keep_relevance_score(self._handle_empty_results(results))
        scores = instructed_scores(self.model, query, results[self.column].to_pylist(), self.instruction)
        results = results.append_column("_relevance_score", pa.array(scores, type=pa.float32()))
        return self._keep_relevance_score(results).sort_by([("_relevance_score", "descending")])

    def rerank_vector(self, query: str, vector_results: pa.Table) -> pa.Table:
        """Order the results of a vector search.

        Args:
            query: What is searched for.
            vector_results: The results.

        Returns:
            The same rows, the best first, with ``_relevance_score``.
        """
        return self._ordered(query, vector_results)

    def rerank_fts(self, query: str, fts_results: pa.Table) -> pa.Table:
        """Order the results of a full-text search.

        Args:
            query: What is searched for.
            fts_results: The results.

        Returns:
            The same rows, the best first, with ``_relevance_score``.
        """
        return self._ordered(query, fts_results)

    def rerank_hybrid(self, query: str, vector_results: pa.Table, fts_results: pa.Table) -> pa.Table:
        """Order the results of both searches, each row once.

        Args:
            query: What is searched for.
            vector_results: Of the vector search.
            fts_results: Of the full-text search.

        Returns:
            The rows, the best first, with ``_relevance_score``.
        """
        merge = self.merge_results if self.score == "relevance" else self._merge_and_keep_scores
        return self._ordered(query, merge(vector_results, fts_results))


@register("inbedder")
class InbedderEmbeddings(TextEmbeddingFunction):
    """Vectors of a column of texts, and of queries, under one instruction."""

    name: str = "mini"
    """The model."""
    instruction: str | None = None
    """What is asked of every text; None gives generic vectors."""

    def ndims(self) -> int:
        """Length of a vector."""
        return len(self.generate_embeddings(["a"])[0])

    def generate_embeddings(self, texts: Sequence[str]) -> list[Any]:
        """Embed texts.

        Args:
            texts: n texts.

        Returns:
            n vectors of length 1.
        """
        return list(loaded(self.name).encode(list(texts), self.instruction, normalize_embeddings=True))
