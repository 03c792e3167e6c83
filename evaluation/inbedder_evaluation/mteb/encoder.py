"""Evaluation of InBedder models by mteb.

    import mteb
    from inbedder_evaluation.mteb.encoder import MtebEncoder

    mteb.evaluate(MtebEncoder("mini"), mteb.get_tasks(tasks=["Banking77Classification"]))

The task's prompt is the instruction; ``instructions`` replaces it for the tasks that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbedder.embedder import InBedder
from inbedder_evaluation.mteb_adapters import AbsEncoder, describe, list_texts
from inbedder_evaluation.tasks.task import fingerprint

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import PromptType
    from torch.utils.data import DataLoader

    from inbedder.vectors.vectors import Vectors


class MtebEncoder(AbsEncoder):
    """An InBedder that mteb can evaluate; its instruction is the task's prompt."""

    def __init__(
        self,
        model: str | InBedder = "mini",
        revision: str | None = None,
        *,
        device: str | None = None,
        instructions: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Load a model, or wrap a loaded one.

        Args:
            model: A model name, hub id or folder, or a loaded InBedder.
            revision: Branch, tag or commit on the hub; only used with a name.
            device: A torch device; only used with a name.
            instructions: Instruction by task name; replaces the prompts of these tasks.
            **options: Further arguments of ``InBedder``; only used with a name.
        """
        self.model = InBedder(model, revision=revision, device=device, **options) if isinstance(model, str) else model
        self.instructions = dict(instructions or {})
        revision = fingerprint(
            [], [self.model.spec.key(), self.instructions]
        )  # mteb caches results by revision, so every setting that changes vectors must change it
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
            task_metadata: The task's metadata; its prompt is the instruction.
            hf_split: Not used.
            hf_subset: Not used.
            prompt_type: Query or document, for tasks that have a prompt for each.
            **kwargs: Only batch_size is used.

        Returns:
            float32, shape (n, d).
        """
        instruction = self.instructions.get(task_metadata.name) or self._choose_prompt(task_metadata, prompt_type)
        return self.model.encode(list_texts(inputs), instruction, batch_size=int(kwargs.get("batch_size", 32)))

    def _choose_prompt(self, task_metadata: TaskMetadata, prompt_type: PromptType | None) -> str:
        """Choose the prompt of a side; a model that answers is asked the one question that a task has for both sides."""
        prompt = task_metadata.prompt
        questions = [question for question in prompt.values() if question] if isinstance(prompt, Mapping) else []
        if self.model.pipeline.defaults.asks and len(questions) == 1:
            return str(questions[0])
        return str(self.get_instruction(task_metadata, prompt_type))
