"""InBedder as mteb sees a model, and any mteb model as our runner sees an embedder.

    import mteb
    from inbedder_evaluation.mteb_encoder import MtebEncoder

    mteb.evaluate(MtebEncoder("mini"), mteb.get_tasks(tasks=["Banking77Classification"]))

The task's prompt is the instruction; ``instructions`` gives better ones by task name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.backbones.sentence_modules import find_sentence_folder
from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError, ModelError
from inbedder.models.bundled import resolve_name
from inbedder_evaluation.tasks.task import fingerprint

try:
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder, PromptSource
    from mteb.models.model_meta import ScoringFunction
except ImportError as error:
    raise MissingExtraError("mteb", "evaluation") from error

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import PromptType
    from torch.utils.data import DataLoader

    from inbedder.vectors import Vectors


class MtebEncoder(AbsEncoder):
    """An InBedder that mteb can evaluate: the instruction is the task's prompt."""

    def __init__(
        self,
        model: str | InBedder = "mini",
        revision: str | None = None,
        *,
        device: str | None = None,
        instructions: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Load or take a model.

        Args:
            model: A name as ``InBedder`` takes it, or an InBedder.
            revision: Branch, tag or commit on the hub, for a name.
            device: A torch device, for a name.
            instructions: Instruction by task name, in place of the tasks' own prompts.
            **options: As ``InBedder`` takes them, for a name.
        """
        self.model = InBedder(model, revision=revision, device=device, **options) if isinstance(model, str) else model
        self.instructions = dict(instructions or {})
        revision = fingerprint(
            [], [self.model.spec.key(), self.instructions]
        )  # mteb keeps results by it: another way of reading must not find another's
        self.mteb_model_meta = describe(f"inbedder/{Path(self.model.name).name}", revision)

    def encode(
        self,
        inputs: DataLoader[Any],
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> Vectors:
        """Embed a task's texts under its instruction.

        Args:
            inputs: Batches with a "text" list each.
            task_metadata: What the task says of itself; its prompt is the instruction.
            hf_split: Not used.
            hf_subset: Not used.
            prompt_type: Whether these are queries or documents, for tasks that ask them differently.
            **kwargs: batch_size is used.

        Returns:
            float32, shape (n, d).
        """
        instruction = self.instructions.get(task_metadata.name) or self.get_instruction(task_metadata, prompt_type)
        return self.model.encode(list_texts(inputs), instruction, batch_size=int(kwargs.get("batch_size", 32)))


class FunctionEncoder(AbsEncoder):
    """A function from texts to vectors that mteb can evaluate; texts seen before are not computed again."""

    def __init__(self, encode: Callable[[Sequence[str]], Vectors]) -> None:
        """Take a function.

        Args:
            encode: n texts to vectors, shape (n, d).
        """
        self._encode = encode
        self._vectors: dict[str, Any] = {}
        self.mteb_model_meta = describe("inbedder/function", "none")

    def remember(self, texts: Sequence[str]) -> None:
        """Compute the vectors of texts, in one call for those that are new.

        Args:
            texts: n texts.
        """
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._encode(new), strict=True))

    def encode(self, inputs: DataLoader[Any], **_kwargs: Any) -> Vectors:
        """Look the texts up, or compute their vectors.

        Args:
            inputs: Batches with a "text" list each.
            **_kwargs: What mteb says of the task; not used.

        Returns:
            float32, shape (n, d).
        """
        return self.get_vectors(list_texts(inputs))

    def get_vectors(self, texts: Sequence[str]) -> Vectors:
        """The vectors of texts, computed where they are new.

        Args:
            texts: n texts.

        Returns:
            float32, shape (n, d).
        """
        self.remember(texts)
        return np.stack([self._vectors[text] for text in texts])


def make_loader(texts: Sequence[str], batch_size: int = 64) -> DataLoader[Any]:
    """Texts as mteb hands them to a model.

    Args:
        texts: n texts.
        batch_size: Texts a batch.

    Returns:
        Batches with a "text" list each.
    """
    from datasets import Dataset
    from torch.utils.data import DataLoader

    return DataLoader(Dataset.from_dict({"text": list(texts)}), batch_size=batch_size)


def make_metadata(instruction: str | None, name: str = "Instructed", **fields_of_task: Any) -> TaskMetadata:
    """What an mteb task says of itself, with an instruction as its prompt.

    Args:
        instruction: The prompt; None for none.
        name: Name of the task.
        **fields_of_task: Other fields of mteb's TaskMetadata.

    Returns:
        mteb's description of a task.
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
    return TaskMetadata(**{**fields, **fields_of_task})


def list_texts(inputs: DataLoader[Any]) -> list[str]:
    """All texts of a loader, in order."""
    return [text for batch in inputs for text in batch["text"]]


def describe(name: str, revision: str) -> ModelMeta:
    """What mteb stores about a model.

    Args:
        name: As organisation/name.
        revision: What identifies the weights.

    Returns:
        mteb's description with cosine similarity.
    """
    return ModelMeta.create_empty({"name": name, "revision": revision, "similarity_fn_name": ScoringFunction.COSINE})


def load_mteb_model(name: str) -> Any:
    """A model through mteb: one of its own, or any sentence-transformers folder.

    Args:
        name: A model of mteb, a hub id, a folder, or all-MiniLM-L6-v2 (which the extra ``mini`` brings: no network).

    Returns:
        The model, with mteb's encoder protocol.

    Raises:
        ModelError: When it cannot be loaded.
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
            "(with a network), or a folder of a sentence-transformers model."
        ) from error
    model.prompt_priority = (PromptSource.DEFAULT_TASK_PROMPT,)  # the instruction asked for, not one by the kind of task
    return model
