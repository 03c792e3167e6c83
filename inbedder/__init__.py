"""Instruction-following text embeddings: a text's vector is a language model's answer to your question about it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inbedder.classification.categories import Category
    from inbedder.classification.category_result import Classification
    from inbedder.classification.classifier import classify
    from inbedder.classification.codebook import Codebook
    from inbedder.conditional import ConditionalEncoder
    from inbedder.embedder import InBedder
    from inbedder.errors import InbedderError
    from inbedder.grouping.assign.assignment import Assignment
    from inbedder.grouping.assign.grouping import Grouping
    from inbedder.grouping.clustering import ClusterResult, cluster
    from inbedder.grouping.compare.crosstab import CrossTable, crosstab
    from inbedder.grouping.questions.suggestion import Suggestion, suggest_questions
    from inbedder.grouping.questions.wording_agreement import WordingComparison, compare_wordings
    from inbedder.prompting.templates import PromptTemplate

__version__ = "0.1.0"
__all__ = [
    "Assignment",
    "Category",
    "Classification",
    "ClusterResult",
    "Codebook",
    "ConditionalEncoder",
    "CrossTable",
    "Grouping",
    "InBedder",
    "InbedderError",
    "PromptTemplate",
    "Suggestion",
    "WordingComparison",
    "__version__",
    "classify",
    "cluster",
    "compare_wordings",
    "crosstab",
    "suggest_questions",
]

_MODULES = {
    "Assignment": "inbedder.grouping.assign.assignment",
    "Category": "inbedder.classification.categories",
    "Classification": "inbedder.classification.category_result",
    "ClusterResult": "inbedder.grouping.clustering",
    "Codebook": "inbedder.classification.codebook",
    "ConditionalEncoder": "inbedder.conditional",
    "CrossTable": "inbedder.grouping.compare.crosstab",
    "Grouping": "inbedder.grouping.assign.grouping",
    "InBedder": "inbedder.embedder",
    "InbedderError": "inbedder.errors",
    "PromptTemplate": "inbedder.prompting.templates",
    "Suggestion": "inbedder.grouping.questions.suggestion",
    "WordingComparison": "inbedder.grouping.questions.wording_agreement",
    "classify": "inbedder.classification.classifier",
    "cluster": "inbedder.grouping.clustering",
    "compare_wordings": "inbedder.grouping.questions.wording_agreement",
    "crosstab": "inbedder.grouping.compare.crosstab",
    "suggest_questions": "inbedder.grouping.questions.suggestion",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that importing the package stays cheap."""
    if name not in _MODULES:
        raise AttributeError(f"module 'inbedder' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
