"""An adapter for LlamaIndex: embeddings of nodes and queries under an instruction.

Settings.embed_model = InstructedEmbedding(instruction="What is the complaint about?")
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from inbedder.embedder import InBedder
from inbedder.errors import InputError, MissingExtraError, format_names
from inbedder.integrations.shared_models import load_shared
from inbedder.option_types import FormatKwargs
from inbedder.vector_spec import VectorSpec

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
except ImportError as error:
    raise MissingExtraError("llama-index-core") from error


class InstructedEmbedding(BaseEmbedding):
    """Embeddings of nodes and queries, of length 1; without instructions, the model's own prompts of documents and queries.

    Example:
        >>> from inbedder.integrations.llama_index import InstructedEmbedding
        >>> embedding = InstructedEmbedding(instruction="What is the complaint about?")
        >>> len(embedding.get_text_embedding("The box was crushed"))
        384
    """

    instruction: str | None = Field(default=None, description="The question about every node; None takes the model's own prompt.")
    query_instruction: str | None = Field(default=None, description="The question about queries; None takes ``instruction``.")
    spec: str | None = Field(
        default=None, description="The model's vectors, as ``VectorSpec`` stores them; part of every cache key."
    )
    _model: InBedder = PrivateAttr()

    def __init__(self, model: str | InBedder | None = None, **fields: Any) -> None:
        """Load the model.

        Args:
            model: An ``InBedder`` or the name of one; None takes ``model_name``, or from storage ``spec``, or ``mini``.
            **fields: ``instruction``, ``query_instruction``, and LlamaIndex's own fields such as ``embed_batch_size``.

        Raises:
            InputError: If a field is unknown, or the stored model's files have changed.
        """
        name, stored = fields.pop("model_name", None), fields.pop("spec", None)
        if unknown := sorted(fields.keys() - type(self).model_fields.keys() - {"class_name"}):
            raise InputError(f"InstructedEmbedding has no field {format_names(unknown)}.")
        if model is None and stored is not None:
            model = VectorSpec.from_json(stored).load(InBedder)
        embedder = load_shared(name or "mini" if model is None else model)
        super().__init__(model_name=embedder.name, spec=embedder.spec.to_json(), **fields)
        self._model = embedder

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field; another model needs another object."""
        if name in ("model_name", "spec"):
            raise InputError(f"{name} cannot be changed. Create another InstructedEmbedding.")
        super().__setattr__(name, value)

    def __setstate__(self, state: Any) -> None:
        """Restore the fields of a pickle, and load the model."""
        self.__init__(**state["__dict__"])  # type: ignore[misc]  # LlamaIndex's own method hides its errors

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex stores this class."""
        return "InstructedEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        instruction = self.instruction if self.query_instruction is None else self.query_instruction
        return list(self._model.encode_query(query, instruction, normalize_embeddings=True, precision="float32").tolist())

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: Sequence[str]) -> list[list[float]]:
        options: FormatKwargs = {
            "batch_size": self.embed_batch_size,
            "normalize_embeddings": True,
            "precision": "float32",
            "show_progress_bar": False,
        }
        return list(self._model.encode_document(list(texts), self.instruction, **options).tolist())

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: Sequence[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)
