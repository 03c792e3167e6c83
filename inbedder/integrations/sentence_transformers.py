"""An adapter for sentence-transformers: the module that exported folders name when built-in modules cannot express the model.

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
    """The only module of an exported SentenceTransformer: an ``InBedder`` whose instruction is the prompt.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from inbedder import InBedder
        >>> InBedder().save_sentence_transformer("mini-folder")
        >>> model = SentenceTransformer("mini-folder", trust_remote_code=True)
        >>> model.encode(["The box was crushed"], prompt="What is the complaint about?").shape
        (1, 384)
    """

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

    @property
    def max_seq_length(self) -> int:
        """Maximum number of tokens of a prompt; texts are cut to fit."""
        return self.embedder.max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self.embedder = self.embedder.replace(max_length=value)

    def _apply(self, convert: Any, recurse: bool = True) -> Any:
        """Move the weights to a device; their type is an option of ``InBedder``, which also determines how sums are computed."""
        if (dtype := convert(torch.zeros(1)).dtype) != torch.float32:
            name = str(dtype).removeprefix("torch.")
            raise ModelError(f"Its type cannot be changed here. Export it again from InBedder(..., dtype={name!r}).")
        return super()._apply(convert, recurse)

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_options: Any) -> dict[str, Any]:
        """Pass texts and prompt (the instruction, or None) on unchanged to ``forward``."""
        return {"texts": list(inputs), "instruction": prompt or None}

    def forward(self, features: dict[str, Any], **_options: Any) -> dict[str, Any]:
        """Embed the texts: add ``sentence_embedding``, float32, shape (n, d), on the model's device, to the features."""
        vectors = self.embedder.encode(features["texts"], features["instruction"], show_progress_bar=False)
        features["sentence_embedding"] = torch.from_numpy(vectors).to(self.embedder.device)
        return features

    def get_embedding_dimension(self) -> int:
        """Return the length of a vector."""
        return self.embedder.get_embedding_dimension()

    def save(self, output_path: str, *_args: Any, **_options: Any) -> None:
        """Raise ModelError: ``InBedder`` exports such folders."""
        raise ModelError("Save it with inbedder: model[0].embedder.save_sentence_transformer(folder).")

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> AnswerVectors:
        """Load the model of a folder or of a hub repository.

        Args:
            model_name_or_path: The folder or hub id.
            subfolder: Subfolder of the model.
            **options: token, cache_folder, revision and local_files_only of a repository; others are ignored.

        Returns:
            The module.
        """
        repository_options = {name: options.get(name) for name in ("token", "cache_folder", "revision")}
        folder = cls.load_dir_path(
            model_name_or_path, subfolder=subfolder, local_files_only=bool(options.get("local_files_only")), **repository_options
        )
        spec = VectorSpec.from_json((Path(str(folder)) / SPEC_FILE).read_text(encoding="utf-8"))
        dtype = "float32" if spec.compute_dtype == "float32" else None  # any other type is the machine's choice
        return cls(spec.load(InBedder, model=str(folder), revision=None, base_revision=None, dtype=dtype))
