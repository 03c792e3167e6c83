"""An adapter for LanceDB: a reranker under an instruction, and an embedding function registered as "inbedder".

table.search(vector).rerank(InstructedReranker("What is the complaint about?"), query_string="battery died").to_pandas()
get_registry().get("inbedder").create(name="mini", instruction="What is the complaint about?")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import load_shared
from inbedder.search.model_vectors import score_texts

try:
    import pyarrow as pa
    from lancedb.embeddings import TextEmbeddingFunction, register
    from lancedb.rerankers import Reranker
    from pydantic import ConfigDict
except ImportError as error:
    raise MissingExtraError("lancedb", "search") from error

if TYPE_CHECKING:
    from collections.abc import Sequence


class InstructedReranker(Reranker):
    """A reranker of LanceDB's own searches that orders results by their similarity to the query under an instruction.

    Example:
        >>> import pyarrow
        >>> from inbedder.integrations.lancedb import InstructedReranker
        >>> results = pyarrow.table({"text": ["Great price", "The box was crushed"]})
        >>> ranked = InstructedReranker("What is the complaint about?").rerank_vector("My parcel was damaged", results)
        >>> ranked["text"].to_pylist()
        ['The box was crushed', 'Great price']
    """

    def __init__(
        self, instruction: str, model: str | InBedder = "mini", column: str = "text", return_score: str = "relevance"
    ) -> None:
        """Load the model.

        Args:
            instruction: The question about query and texts, or ``@name``.
            model: An ``InBedder`` or the name of one.
            column: The results' column of texts.
            return_score: "relevance", or "all" to keep LanceDB's scores as well.
        """
        super().__init__(return_score)
        self.instruction, self.column = instruction, column
        self.model = load_shared(model)

    def _order_results(self, query: str, results: pa.Table) -> pa.Table:
        if not len(results):
            return self._keep_relevance_score(self._handle_empty_results(results))
        texts = results[self.column].to_pylist()
        filled_rows = [row for row, text in enumerate(texts) if text is not None]
        scores = np.full(len(texts), -1.0)  # a row without a text is the last
        if filled_rows:
            scores[filled_rows] = score_texts(self.model, query, [texts[row] for row in filled_rows], self.instruction)
        results = results.append_column("_relevance_score", pa.array(scores, type=pa.float32()))
        return self._keep_relevance_score(results).sort_by([("_relevance_score", "descending")])

    def rerank_vector(self, query: str, vector_results: pa.Table) -> pa.Table:
        """Order the results of a vector search, the best first, with ``_relevance_score``."""
        return self._order_results(query, vector_results)

    def rerank_fts(self, query: str, fts_results: pa.Table) -> pa.Table:
        """Order the results of a full-text search, the best first, with ``_relevance_score``."""
        return self._order_results(query, fts_results)

    def rerank_hybrid(self, query: str, vector_results: pa.Table, fts_results: pa.Table) -> pa.Table:
        """Order the results of both searches, each row once, the best first, with ``_relevance_score``."""
        merge = self.merge_results if self.score == "relevance" else self._merge_and_keep_scores
        return self._order_results(query, merge(vector_results, fts_results))


@register("inbedder")
class InbedderEmbeddings(TextEmbeddingFunction):
    """An embedding function that fills a vector column from a text column and embeds queries, under one instruction.

    Example:
        >>> from lancedb.embeddings import get_registry
        >>> import inbedder.integrations.lancedb
        >>> get_registry().get("inbedder").create(name="mini").ndims()
        384
    """

    model_config = ConfigDict(extra="forbid")
    name: str = "mini"
    """Name of the model."""
    instruction: str | None = None
    """The question about every text; None gives generic vectors."""

    def ndims(self) -> int:
        """Return the length of a vector."""
        return len(self.generate_embeddings(["a"])[0])

    def generate_embeddings(self, texts: Sequence[str]) -> list[Any]:
        """Embed n texts as vectors of length 1."""
        return list(load_shared(self.name).encode(list(texts), self.instruction, normalize_embeddings=True, precision="float32"))
