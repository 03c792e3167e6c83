"""For LlamaIndex: embeddings of nodes and queries under an instruction.

Settings.embed_model = InstructedEmbedding(instruction="What is the complaint about?")
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import loaded

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
except ImportError as error:
    raise MissingExtraError("llama-index-core") from error


class InstructedEmbedding(BaseEmbedding):
    """Vectors of length 1, of nodes and of queries; the default of neither is the model's own pair of prompts."""

    instruction: str | None = Field(default=None, description="What is asked of every node; None is the model's own prompt.")
    query_instruction: str | None = Field(default=None, description="What is asked of queries; None is what nodes are asked.")
    _model: InBedder = PrivateAttr()

    def __init__(self, model: str | InBedder = "mini", **fields: Any) -> None:
        """Take a model.

        Args:
            model: An ``InBedder`` or the name of one.
            **fields: ``instruction``, ``query_instruction``, and LlamaIndex's ``embed_batch_size`` and the like.
        """
        taken = loaded(fields.pop("model_name", model))
        super().__init__(model_name=taken.name, **fields)
        self._model = taken

    @classmethod
    def class_name(cls) -> str:
        """What LlamaIndex calls this class."""
        return "InstructedEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        asked = self.instruction if self.query_instruction is None else self.query_instruction
        return list(self._model.encode_query(query, asked, normalize_embeddings=True).tolist())

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: Sequence[str]) -> list[list[float]]:
        options = {"batch_size": self.embed_batch_size, "normalize_embeddings": True, "show_progress_bar": False}
        return list(self._model.encode_document(list(texts), self.instruction, **options).tolist())

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: Sequence[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)
