"""Queries and documents: two sides of one search, asked differently, and compared by their cosines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.prompting import GENERIC_INSTRUCTION, PromptTemplate

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Unasked:
    """The instructions that stand in for None; "" is none at all."""

    any: str = GENERIC_INSTRUCTION
    """Of ``encode``."""
    query: str = GENERIC_INSTRUCTION
    """Of ``encode_query``."""
    document: str = GENERIC_INSTRUCTION
    """Of ``encode_document``."""


def unasked(template: PromptTemplate, prompts: Mapping[str, str] | None) -> Unasked:
    """Choose what a model is asked where nobody says.

    Args:
        template: How prompts are made.
        prompts: For embedding models the checkpoint's own prompts, by "query", "document" and "" (any text); None for others.

    Returns:
        For a model that answers ``@generic`` throughout. For an embedding model its own prompts, as far as the template makes
        such prompts; where it has none for queries and documents, the template's instructions for these.
    """
    if prompts is None:
        return Unasked()
    own = {name: asked for name, prompt in prompts.items() if (asked := template.instruction_of(prompt)) is not None}
    if "query" in own or "document" in own:
        return Unasked(own.get("", ""), own.get("query", ""), own.get("document", ""))
    return Unasked(own.get("", ""), template.query, template.document)


class BiEncoder(ABC):
    """Encodes both sides of a search."""

    unasked: Unasked
    """What it is asked where nobody says."""

    @abstractmethod
    def encode(self, *args: Any, **options: Any) -> Vectors:
        """Embed texts under an instruction."""

    def encode_query(self, texts: str | Sequence[str], instruction: str | Sequence[str] | None = None, **options: Any) -> Vectors:
        """Embed what is searched for.

        Args:
            texts: One text or n texts.
            instruction: As for ``encode``. None is the checkpoint's own prompt of a query; for INSTRUCTOR models without one
                "Represent the question for retrieving supporting documents:"; for models that answer ``@generic``.
            **options: Keyword arguments of ``encode``.

        Returns:
            float32, shape (n, d), or (d,) for one string.
        """
        return self.encode(texts, self.unasked.query if instruction is None else instruction, **options)

    def encode_document(
        self, texts: str | Sequence[str], instruction: str | Sequence[str] | None = None, **options: Any
    ) -> Vectors:
        """Embed what is searched through.

        Args:
            texts: One text or n texts.
            instruction: As for ``encode``. None is the checkpoint's own prompt of a document; for INSTRUCTOR models without one
                "Represent the document for retrieval:"; none at all for E5-instruct and Qwen3-Embedding; for models that answer
                ``@generic``, so that documents are read once, whatever is asked later.
            **options: Keyword arguments of ``encode``.

        Returns:
            float32, shape (n, d), or (d,) for one string.
        """
        return self.encode(texts, self.unasked.document if instruction is None else instruction, **options)

    @staticmethod
    def similarity(a: Any, b: Any) -> Vectors:
        """Cosine similarities.

        Args:
            a: Vectors, shape (n, d) or (d,).
            b: Vectors, shape (m, d) or (d,).

        Returns:
            float32, shape (n, m); a vector of zeros is similar to nothing.
        """
        left, right = (np.atleast_2d(np.asarray(one, dtype=np.float32)) for one in (a, b))
        left, right = (one / np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-12) for one in (left, right))
        product: Vectors = left @ right.T
        return product
