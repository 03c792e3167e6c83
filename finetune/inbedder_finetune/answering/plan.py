"""Plan of a run: a recipe resolved for the machine and the number of processes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from inbedder.errors import RecipeError
from inbedder.options import ModelOptions
from inbedder.prompting.templates import get_template
from inbedder_finetune.answering.answering_recipe import (
    AnsweringData,
    AnsweringLora,
    AnsweringRecipe,
    AnsweringSchedule,
    Languages,
)
from inbedder_finetune.answering.examples import AnswerFormat
from inbedder_finetune.answering.objectives import make_objectives
from inbedder_finetune.answering.objectives.base import TokenObjective, VectorObjective, VectorSettings
from inbedder_finetune.preflight import check_reporting, count_processes, uses_bf16


@dataclass(frozen=True)
class ModelPlan:
    """The model of a run, and what is added to it."""

    name: str
    """The recipe's name of the model."""
    options: ModelOptions
    """Options with which it is loaded."""
    max_length: int
    """Maximum prompt length in tokens."""
    lora: AnsweringLora | None
    """Adapters; None trains all weights."""
    pooling: str | None
    """Pooling of the trained vector; None is the family's."""
    soft_tokens: int
    """Number of soft tokens that soft-gen reads; 0 with other poolings."""
    late_interaction: bool
    """Whether only the masks attend to both text and question."""
    languages: Languages | None
    """Parallel texts that the language filter is fitted on, with the path of their file."""

    @property
    def has_question_adapter(self) -> bool:
        """Whether the adapters apply to the question's and the answer's tokens only."""
        return self.lora is not None and self.lora.tokens == "question"


@dataclass(frozen=True)
class Plan:
    """Settings of a run, resolved once."""

    settings: dict[str, Any]
    """All settings of the recipe, as nested tables."""
    result: dict[str, Any]
    """Settings of the result's ``inbedder.json``."""
    output: Path
    """Folder of the checkpoints and the result."""
    model: ModelPlan
    """The model."""
    data: AnsweringData
    """The recipe's section ``data``."""
    schedule: AnsweringSchedule
    """The recipe's section ``training``."""
    processes: int
    """Number of training processes."""
    shards: int
    """Number of processes that share weights, gradients and moments (FSDP); 1 without FSDP."""
    rows_per_process: int
    """Rows of a step per process."""
    micro_batch: int
    """Rows per process and forward pass."""
    bf16: bool
    """Whether to train in bfloat16 autocast."""
    answer_format: AnswerFormat
    """Format of prompts and answers."""
    token_objectives: tuple[TokenObjective, ...]
    """The objectives over answer tokens."""
    vector_objectives: tuple[VectorObjective, ...]
    """The active objectives over vectors."""
    vector: VectorSettings
    """Settings of the trained vector."""


def resolve_plan(recipe: AnsweringRecipe) -> Plan:
    """Resolve a recipe.

    Args:
        recipe: A validated recipe.

    Returns:
        The plan. Its micro-batch is the recipe's, or all rows of a process; ``memory`` may choose a smaller one.

    Raises:
        RecipeError: If the rows of a step cannot be split evenly, or the package of a report is missing.
    """
    schedule, processes = recipe.training, count_processes()
    check_reporting(schedule.report_to)
    micro_batch = schedule.micro_batch or schedule.batch_size // processes
    if micro_batch < 1 or schedule.batch_size % (micro_batch * processes):
        raise RecipeError(
            f"training.batch_size={schedule.batch_size} is not a multiple of {processes} processes times {micro_batch} rows per "
            "micro-batch."
        )
    objectives = make_objectives(recipe.objective)
    bf16 = uses_bf16(schedule.bf16)
    return Plan(
        settings=asdict(recipe),
        result=_make_result_settings(recipe),
        output=Path(schedule.output),
        model=_plan_model(recipe, bf16),
        data=recipe.data,
        schedule=schedule,
        processes=processes,
        shards=processes if schedule.fsdp else 1,
        rows_per_process=schedule.batch_size // processes,
        micro_batch=micro_batch,
        bf16=bf16,
        answer_format=AnswerFormat(
            get_template(recipe.template),
            recipe.max_length,
            recipe.mask_length,
            recipe.max_answer_tokens,
            recipe.answer_prefix,
        ),
        token_objectives=tuple(term for term in objectives if isinstance(term, TokenObjective)),
        vector_objectives=tuple(term for term in objectives if isinstance(term, VectorObjective) and term.is_active),
        vector=recipe.objective,
    )


def _plan_model(recipe: AnsweringRecipe, bf16: bool) -> ModelPlan:
    """Plan the model: float32 or ``lora.base_dtype``; weights in nf4 compute in bfloat16 if the run does, as in QLoRA."""
    dtype = "float32" if recipe.lora is None else recipe.lora.base_dtype
    if recipe.quantization == "nf4" and bf16:
        dtype = "bfloat16"
    device = "cpu" if recipe.training.fsdp else None  # sharded before it goes to the GPUs
    languages = recipe.languages
    if languages is not None:
        languages = replace(languages, path=str(Path(recipe.data.folder) / languages.path))
    return ModelPlan(
        name=recipe.model,
        options=ModelOptions(recipe.model, dtype=dtype, quantization=recipe.quantization, device=device),
        max_length=recipe.max_length,
        lora=recipe.lora,
        pooling=recipe.objective.pooling,
        soft_tokens=recipe.objective.soft_tokens if recipe.objective.pooling == "soft-gen" else 0,
        late_interaction=recipe.late_interaction,
        languages=languages,
    )


def _make_result_settings(recipe: AnsweringRecipe) -> dict[str, Any]:
    """Make the settings of the result's ``inbedder.json``."""
    is_soft, options = recipe.objective.pooling == "soft-gen", recipe.options
    base_encoder = recipe.model if recipe.late_interaction else None  # whose vectors are a part of the model's
    settings = {
        "base": recipe.model if recipe.lora else None,
        "template": recipe.template,
        "mask_length": recipe.mask_length if isinstance(recipe.mask_length, int) else None,
        "late_interaction": recipe.late_interaction or None,
        "language_directions": None if recipe.languages is None else recipe.languages.directions,
        "base_encoder": options.base_encoder or base_encoder,
        "normalize": (recipe.late_interaction or None) if options.normalize is None else options.normalize,
        "beside": options.beside,
        "question_adapter": recipe.has_question_adapter or None,
        "pooling": "soft-gen" if is_soft else None,
        "max_new_tokens": recipe.objective.soft_tokens if is_soft else options.max_new_tokens,
    }
    return {key: value for key, value in settings.items() if value is not None}
