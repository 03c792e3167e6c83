"""Instruction-following text embeddings: a text's vector is a language model's answer to your question about it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inbedder.classification.classifier import classify
    from inbedder.conditional import ConditionalEncoder
    from inbedder.embedder import InBedder
    from inbedder.errors import InbedderError
    from inbedder.grouping.assign.grouping import Grouping
    from inbedder.grouping.clustering import ClusterResult, cluster
    from inbedder.grouping.compare.crosstab import crosstab
    from inbedder.grouping.questions.wording_agreement import compare_wordings
    from inbedder.prompting.templates import PromptTemplate

__version__ = "0.1.0"
__all__ = [
    "ClusterResult",
    "ConditionalEncoder",
    "Grouping",
    "InBedder",
    "InbedderError",
    "PromptTemplate",
    "__version__",
    "classify",
    "cluster",
    "compare_wordings",
    "crosstab",
]

_MODULES = {
    "ClusterResult": "inbedder.grouping.clustering",
    "ConditionalEncoder": "inbedder.conditional",
    "Grouping": "inbedder.grouping.assign.grouping",
    "InBedder": "inbedder.embedder",
    "InbedderError": "inbedder.errors",
    "PromptTemplate": "inbedder.prompting.templates",
    "classify": "inbedder.classification.classifier",
    "cluster": "inbedder.grouping.clustering",
    "compare_wordings": "inbedder.grouping.questions.wording_agreement",
    "crosstab": "inbedder.grouping.compare.crosstab",
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
