"""An adapter for the ``rerankers`` package: a ranker under an instruction.

InstructedRanker("What is the complaint about?").rank("battery died", docs=texts).top_k(3)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import load_shared
from inbedder.search.model_vectors import score_texts

try:
    from rerankers.models.ranker import BaseRanker
    from rerankers.results import RankedResults, Result
    from rerankers.utils import prep_docs
except ImportError as error:
    raise MissingExtraError("rerankers") from error


class InstructedRanker(BaseRanker):
    """A ranker of documents by the cosine of query and document under an instruction.

    Example:
        >>> from inbedder.integrations.rerankers import InstructedRanker
        >>> ranker = InstructedRanker("What is the complaint about?")
        >>> ranker.rank("My parcel was damaged", docs=["Great price", "The box was crushed"]).top_k(1)[0].text
        'The box was crushed'
    """

    def __init__(self, instruction: str, model: str | InBedder = "mini") -> None:
        """Load the model.

        Args:
            instruction: The question about query and documents, or ``@name``.
            model: An ``InBedder`` or the name of one.
        """
        self.instruction = instruction
        self.model = load_shared(model)

    def score(self, query: str, doc: str) -> float:
        """Score one document by its cosine to the query."""
        return float(score_texts(self.model, query, [doc], self.instruction)[0])

    def rank(
        self, query: str, docs: Any, doc_ids: Sequence[str] | Sequence[int] | None = None, metadata: list[Any] | None = None
    ) -> RankedResults:
        """Rank texts or documents of ``rerankers``, the best first; without ``doc_ids`` they are numbered from 0."""
        if isinstance(docs, list) and not docs:
            return RankedResults(results=[], query=query, has_scores=True)
        documents = prep_docs(docs, doc_ids, metadata)
        scores = score_texts(self.model, query, [document.text for document in documents], self.instruction).tolist()
        ordered = sorted(zip(scores, documents, strict=True), key=lambda pair: -pair[0])
        results = [Result(document=document, score=score, rank=rank) for rank, (score, document) in enumerate(ordered, start=1)]
        return RankedResults(results=results, query=query, has_scores=True)
