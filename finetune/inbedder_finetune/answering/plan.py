"""Plan of a run: a recipe resolved for the machine and the number of processes."""

from __future__ import annotations

from dataclasses import dataclass

from inbedder.errors import RecipeError
from inbedder.prompting.templates import get_template
from inbedder_finetune.answering.answering_recipe import AnsweringRecipe, AnsweringSchedule
from inbedder_finetune.answering.examples import AnswerFormat
from inbedder_finetune.answering.objectives import make_objectives
from inbedder_finetune.answering.objectives.base import TokenObjective, VectorObjective, VectorSettings
from inbedder_finetune.preflight import count_processes, uses_bf16


@dataclass(frozen=True)
class Plan:
    """Settings of a run, resolved once."""

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
    cache: str | None
    """Folder of cached examples and target vectors; None caches nothing."""


def resolve_plan(recipe: AnsweringRecipe) -> Plan:
    """Resolve a recipe.

    Args:
        recipe: A validated recipe.

    Returns:
        The plan. Its micro-batch is the recipe's, or all rows of a process; ``memory`` may choose a smaller one.

    Raises:
        RecipeError: When the rows of a step cannot be split evenly.
    """
    schedule, processes = recipe.training, count_processes()
    micro_batch = schedule.micro_batch or schedule.batch_size // processes
    if micro_batch < 1 or schedule.batch_size % (micro_batch * processes):
        raise RecipeError(
            f"training.batch_size={schedule.batch_size} is not a multiple of {processes} processes times {micro_batch} rows per "
            "micro-batch."
        )
    objectives = make_objectives(recipe.objective)
    return Plan(
        schedule=schedule,
        processes=processes,
        shards=processes if schedule.fsdp else 1,
        rows_per_process=schedule.batch_size // processes,
        micro_batch=micro_batch,
        bf16=uses_bf16(schedule.bf16),
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
        cache=recipe.data.cache,
    )
