"""For sentence-transformers: the module of the folders that ``model.save_sentence_transformer`` writes for readings of its own.

SentenceTransformer(folder, trust_remote_code=True).encode(texts, prompt="What is the complaint about?")
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from inbedder.embedder import InBedder
from inbedder.encoding.sentence_transformers_export import SPEC_FILE
from inbedder.errors import MissingExtraError, ModelError
from inbedder.vector_spec import VectorSpec

try:
    from sentence_transformers.base.modules import InputModule
except ImportError as error:
    raise MissingExtraError("sentence-transformers") from error


class AnswerVectors(InputModule):
    """From texts and a prompt, the instruction, to vectors: an ``InBedder`` as the one module of a SentenceTransformer."""

    save_in_root = False

    def __init__(self, embedder: InBedder) -> None:
        """Wrap a model.

        Args:
            embedder: The model; its weights move with this module.
        """
        super().__init__()
        self.embedder = embedder
        self.weights = embedder.backbone.model
        self.tokenizer = embedder.backbone.tokenizer

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_options: Any) -> dict[str, Any]:
        """Keep texts and prompt as they are.

        Args:
            inputs: n texts.
            prompt: The instruction, or None.
            **_options: sentence-transformers', not used.

        Returns:
            What ``forward`` takes.
        """
        return {"texts": list(inputs), "instruction": prompt or None}

    def forward(self, features: dict[str, Any], **_options: Any) -> dict[str, Any]:
        """Embed the texts.

        Args:
            features: Of ``preprocess``.
            **_options: sentence-transformers', not used.

        Returns:
            With ``sentence_embedding``, float32, shape (n, d), on the model's device.
        """
        vectors = self.embedder.encode(features["texts"], features["instruction"], show_progress_bar=False)
        features["sentence_embedding"] = torch.from_numpy(vectors).to(self.embedder.device)
        return features

    def get_embedding_dimension(self) -> int:
        """Length of a vector."""
        return self.embedder.get_sentence_embedding_dimension()

    def save(self, output_path: str, *_args: Any, **_options: Any) -> None:
        """Refuse: ``InBedder`` writes such folders.

        Args:
            output_path: Not used.
            *_args: Not used.
            **_options: Not used.

        Raises:
            ModelError: Always.
        """
        raise ModelError("Save it with inbedder: model[0].embedder.save_sentence_transformer(folder).")

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> AnswerVectors:  # type: ignore[override]
        """Load the model of a folder or of a hub repository.

        Args:
            model_name_or_path: The folder or hub id.
            subfolder: Where in it the model is.
            **options: token, cache_folder, revision and local_files_only of a repository are used.

        Returns:
            The module.
        """
        known = {name: options.get(name) for name in ("token", "cache_folder", "revision")}
        folder = cls.load_dir_path(
            model_name_or_path, subfolder=subfolder, local_files_only=bool(options.get("local_files_only")), **known
        )
        spec = VectorSpec.from_json((Path(str(folder)) / SPEC_FILE).read_text(encoding="utf-8"))
        return cls(spec.load(InBedder, model=str(folder), revision=None))
