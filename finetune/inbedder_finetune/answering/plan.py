"""A recipe resolved for the machine and the processes that run it: what training reads in place of the recipe."""

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
    """What a run does, resolved once."""

    schedule: AnsweringSchedule
    """The recipe's section ``training``."""
    processes: int
    """Processes that train together (torchrun, accelerate launch)."""
    shards: int
    """Processes that share weights, gradients and moments (FSDP); 1 where each holds them all."""
    rows_per_process: int
    """Rows of a step that one process trains on."""
    micro_batch: int
    """Rows that one process holds at once."""
    bf16: bool
    """Whether to train in bfloat16 autocast."""
    answer_format: AnswerFormat
    """How rows become prompts and answers."""
    token_objectives: tuple[TokenObjective, ...]
    """The terms of the loss over answer tokens."""
    vector_objectives: tuple[VectorObjective, ...]
    """The active terms over vectors, with their teachers and re-encoders."""
    vector: VectorSettings
    """The vector that they train."""
    cache: str | None
    """Folder of tokenized examples and target vectors; None keeps none."""


def resolve_plan(recipe: AnsweringRecipe) -> Plan:
    """Resolve a recipe.

    Args:
        recipe: A checked recipe.

    Returns:
        Its plan, with as many rows at once as the recipe names or a step has; memory may allow fewer (``memory``).

    Raises:
        RecipeError: When the rows of a step cannot be shared evenly.
    """
    schedule, processes = recipe.training, count_processes()
    micro_batch = schedule.micro_batch or schedule.batch_size // processes
    if micro_batch < 1 or schedule.batch_size % (micro_batch * processes):
        raise RecipeError(
            f"training.batch_size={schedule.batch_size} cannot be shared by {processes} processes with {micro_batch} rows at "
            "once: make it a multiple."
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
