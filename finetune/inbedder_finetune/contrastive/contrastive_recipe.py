"""Recipes of the method ``contrastive``: pairs, schedule, temperature and curriculum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from inbedder.errors import RecipeError
from inbedder.options import BASE_NAME
from inbedder_finetune.contrastive.contrastive_losses import Denominator
from inbedder_finetune.curriculum.task_tours import Tour
from inbedder_finetune.recipe import (
    Lora,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Schedule,
    Section,
    UserPath,
    validate_recipe,
)

PairColumns = Mapping[Literal["query", "pos", "neg", "task_id", "input", "instruction", "premise", "hypothesis", "label"], str]


@dataclass(frozen=True)
class PairSource(Section):
    """One table of pairs."""

    path: UserPath
    """File, relative to ``data.folder``."""
    format: Literal["medi", "qa", "nli"] = "medi"
    """Format: "medi"; "qa" pairs each question with its passage; "nli" pairs a premise with the hypotheses labelled entailment,
    against those labelled contradiction."""
    query_instruction: str = ""
    """qa and nli: instruction of the questions or premises."""
    positive_instruction: str = ""
    """qa and nli: instruction of the passages or hypotheses."""
    fields: PairColumns = field(default_factory=dict)
    """Column names of query, pos, neg, task_id (medi), input, instruction (qa), premise, hypothesis, label (nli)."""
    negatives: NonNegativeInt | None = None
    """Hard negatives per row: rows with fewer are rejected, rows with more are sampled. None is 0 for qa, otherwise 1."""
    cap: PositiveInt | None = None
    """Maximum number of rows, sampled with the recipe's seed."""
    task_cap: PositiveInt | None = None
    """Maximum number of rows per task, sampled likewise (the paper's table 5)."""
    keep: Mapping[str, str] = field(default_factory=dict)
    """Keep only rows whose columns hold these values, such as ``{split: train}``."""
    drop_flags: tuple[str, ...] = ()
    """Skip rows whose column ``flags`` holds one of these."""
    drop_instructions: tuple[str, ...] = ()
    """Skip rows whose query instruction begins with one of these."""
    symmetry: Literal["symmetric", "asymmetric"] | None = None
    """Keep only rows whose query and positive have the same instruction (symmetric), or different ones (asymmetric), as in
    INSTRUCTOR's figure 3; None keeps all."""
    instruction_detail: Literal["whole", "simple", "tag", "none"] = "whole"
    """What is kept of the instructions (INSTRUCTOR's figure 5): the "whole" ones, their domain and text type ("simple"), only the
    name of the task ("tag"), or "none", which trains a plain encoder (figure 3)."""
    max_characters: PositiveInt | None = None
    """Skip rows with a longer query or positive."""
    licence: str | None = None
    """Licence of the data, for the model card."""

    @property
    def negative_count(self) -> int:
        """Number of hard negatives per row."""
        return (0 if self.format == "qa" else 1) if self.negatives is None else self.negatives


@dataclass(frozen=True)
class PairData(Section):
    """Training data."""

    sources: tuple[PairSource, ...]
    """The sources of pairs."""
    folder: UserPath = "."
    """Folder of the files."""
    skip_bad: bool = False
    """Skip bad rows instead of stopping at the first."""
    held_out: NonNegativeInt = 0
    """Number of sampled rows kept out of training; their loss is logged every ``training.eval_steps`` steps."""


@dataclass(frozen=True)
class ContrastiveSchedule(Schedule):
    """Training settings of the paper (appendix A)."""

    output: UserPath = "runs/contrastive"
    batch_size: Annotated[int, Field(ge=2)] = 64
    """Maximum number of rows per batch; the other rows of the batch are a row's negatives (``denominator``)."""
    micro_batch: PositiveInt | None = None
    """Rows per forward pass (GradCache); None takes all rows of the batch, which is faster when they fit into memory."""
    keep_checkpoints: PositiveInt | None = 2
    """Number of checkpoints that stay in ``output``, the last ones; None keeps all, to evaluate them."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: slower, with less memory."""
    eval_steps: PositiveInt = 500
    """Steps between evaluations of the held-out rows."""


@dataclass(frozen=True)
class Curriculum(Section):
    """Data-CUBE's row order: similar tasks are neighbours, and the rows of a task go from easy to difficult (``curriculum``)."""

    tasks: bool = True
    """Whether a tour orders the tasks; otherwise their order is random."""
    instances: bool = True
    """Whether margins order the rows of a task; otherwise their order is random."""
    model: str = BASE_NAME
    """Trained model that measures tasks and margins: hub id, folder, or the bundled base."""
    sample: PositiveInt = 100
    """Maximum number of queries whose mean is the vector of a task."""
    tour: Tour = "annealing"
    """Search for the order of tasks: the paper's "annealing", or "2-opt", which is faster and finds better tours."""
    steps: NonNegativeInt | None = None
    """Number of swaps that annealing proposes; None is the paper's 2,000,000. For ``tour: annealing`` only."""
    threshold: float | None = None
    """Margin below which (``direction`` text) or from which (equation) rows are not anchors, only negatives (equation 9). None
    makes all rows anchors, as the paper gives no value."""
    direction: Literal["text", "equation"] | None = None
    """Reading of equation 9: "text" masks difficult rows, "equation" masks easy ones; None is text. For a ``threshold`` only."""


@dataclass(frozen=True)
class ContrastiveRecipe(Section):
    """Recipe of a run that trains an encoder with instructions."""

    data: PairData
    """Training data."""
    model: str = BASE_NAME
    """A BERT-like or T5 encoder, or a sentence-transformers model with mean pooling: hub id, folder, or the bundled base."""
    training: ContrastiveSchedule = field(default_factory=ContrastiveSchedule)
    """Training settings."""
    lora: Lora | None = None
    """Adapters, which are merged into the result; None trains all weights."""
    batches: Literal["task", "random"] = "task"
    """Rows of a batch: of one "task", or "random" rows of all tasks."""
    curriculum: Curriculum | None = None
    """Order of the batches; None makes it random."""
    denominator: Denominator = "batch"
    """Texts in the denominator of the loss: the positives and hard negatives of the "batch" (INSTRUCTOR's equation), the row's
    positive and the "hard-negatives" of the batch (INSTRUCTOR's code), or only these "negatives" (Data-CUBE's equation 3)."""
    temperature: PositiveFloat = 0.01
    """Temperature t of the loss."""
    max_length: PositiveInt = 256
    """Maximum input length in tokens, instruction included; longer texts are truncated at their end."""


def parse_recipe(values: Mapping[str, Any]) -> ContrastiveRecipe:
    """Validate nested tables and build a recipe.

    Args:
        values: Content of the YAML file.

    Returns:
        The recipe.

    Raises:
        RecipeError: If a setting is unknown, missing, out of range or without effect.

    Example:
        >>> parse_recipe({"data": {"sources": ["pairs.jsonl"]}}).temperature
        0.01
    """
    recipe = validate_recipe(ContrastiveRecipe, values)
    _check_curriculum(recipe)
    if recipe.denominator != "batch" and (
        source := next((source for source in recipe.data.sources if not source.negative_count), None)
    ):
        raise RecipeError(
            f"denominator={recipe.denominator} needs hard negatives, and {source.path} has none: set denominator=batch, or the "
            "source's negatives."
        )
    return recipe


def _check_curriculum(recipe: ContrastiveRecipe) -> None:
    curriculum = recipe.curriculum
    if curriculum is None:
        return
    if recipe.batches == "random":
        raise RecipeError("curriculum orders batches of one task: set batches=task, or curriculum=null.")
    if curriculum.steps is not None and not (curriculum.tasks and curriculum.tour == "annealing"):
        raise RecipeError("curriculum.steps has no effect without annealing: remove it, or set curriculum.tour=annealing.")
    if curriculum.direction is not None and curriculum.threshold is None:
        raise RecipeError("curriculum.direction has no effect without curriculum.threshold: set both, or neither.")
