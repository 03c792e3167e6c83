"""Recipes of conditional similarity (``method: conditional``): which encoder learns which rated pairs, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from finetune.recipe import Lora, Schedule, build
from inbedder.conditional.encoding import POOLERS, Encoding
from inbedder.errors import RecipeError
from inbedder.prompting import get_template


@dataclass(frozen=True)
class ConditionalData:
    """What is learned from; the columns stand in ``inbedder.conditional.rated_rows``."""

    train: str = "csts-captions.csv"
    """File of the learned rows, relative to ``folder`` or, when it is not there, to the shipped ``finetune/written``; where it
    has a column split, those of "train"."""
    validation: str | None = "csts-captions.csv"
    """File of the rows that each epoch is measured on; where it has a column split, those of "validation". None measures none."""
    folder: str = "."
    """Where the files lie."""
    pairs: int | None = None
    """Learn only so many pairs, drawn with the recipe's seed (paper, figure 3)."""
    skip_bad: bool = False
    """Leave out bad rows, and for Quad pairs without partner, instead of stopping at the first."""


@dataclass(frozen=True)
class ConditionalObjective:
    """What is minimised (``losses``); the scaling of ratings is ``encoding.scaled``."""

    loss: str = "mse"
    """"mse", "quad" or "quad+mse"; the cross-encoder has "mse" alone."""
    margin: float = 1.0
    """Margin of Quad."""
    quad_weight: float = 1.0
    """Weight of Quad in "quad+mse"."""
    mse_weight: float = 1.0
    """Weight of MSE in "quad+mse"."""


@dataclass(frozen=True)
class ConditionalSchedule(Schedule):
    """The paper's schedule (its tables 7 and 8); ``batch_size`` is even: both rows of a pair stand in one batch."""

    output: str = "runs/conditional"
    epochs: float = 3.0
    batch_size: int = 32
    learning_rate: float = 3e-5
    head_learning_rate: float | None = None
    """Of what stands behind the pooler, which begins at random; None is ``learning_rate``, as in the paper."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this length (the authors' script turns clipping off)."""
    log_steps: int = 10
    report_to: str = "none"
    """"none" or "tensorboard"."""


@dataclass(frozen=True)
class ConditionalRecipe:
    """A whole run."""

    model: str = "all-MiniLM-L6-v2"
    """Any BERT-like model: hub id, folder, or the bundled base."""
    encoding: Encoding = field(default_factory=Encoding)
    """The encoder."""
    data: ConditionalData = field(default_factory=ConditionalData)
    """What is learned from."""
    objective: ConditionalObjective = field(default_factory=ConditionalObjective)
    """What is minimised."""
    training: ConditionalSchedule = field(default_factory=ConditionalSchedule)
    """How long and how fast."""
    lora: Lora | None = None
    """Adapters, merged into the saved weights; None trains all weights."""


def parse_recipe(values: Mapping[str, Any]) -> ConditionalRecipe:
    """Build a recipe of nested tables.

    Args:
        values: What the YAML file holds, without ``method``.

    Returns:
        The recipe.

    Raises:
        RecipeError: When a setting is unknown, of another type, or fits no other.
    """
    ready = dict(values)
    for name, kind in (
        ("encoding", Encoding),
        ("data", ConditionalData),
        ("objective", ConditionalObjective),
        ("training", ConditionalSchedule),
    ):
        ready[name] = build(kind, ready.get(name) or {}, name)
    if ready.get("lora") is not None:
        ready["lora"] = build(Lora, ready["lora"], "lora")
    recipe = build(ConditionalRecipe, ready, "The recipe")
    _check_choices(recipe)
    _check_numbers(recipe)
    return recipe


def _check_choices(recipe: ConditionalRecipe) -> None:
    encoding, loss = recipe.encoding, recipe.objective.loss
    for name, value, known in (
        ("encoding.kind", encoding.kind, ("cross", "bi", "tri")),
        ("encoding.pooler", encoding.pooler, POOLERS),
        ("encoding.combine", encoding.combine, ("hadamard", "mlp")),
        ("encoding.reads", encoding.reads, ("all", "sentences", "condition")),
        ("objective.loss", loss, ("mse", "quad", "quad+mse")),
        ("training.report_to", recipe.training.report_to, ("none", "tensorboard")),
    ):
        if value not in known:
            raise RecipeError(f"{name} is {value!r}; choose one of: {', '.join(known)}.")
    get_template(encoding.template)
    if encoding.kind == "cross" and loss != "mse":
        raise RecipeError(
            f"objective.loss={loss} needs the vectors of both sentences, which a cross-encoder has not: mse is its loss."
        )
    readable = {"cross": ("all", "sentences", "condition"), "bi": ("all", "sentences"), "tri": ("all",)}[encoding.kind]
    if encoding.reads not in readable:
        raise RecipeError(
            f"encoding.reads={encoding.reads} is no ablation of the {encoding.kind}-encoder, which compares two vectors: the "
            "cross-encoder reads sentences or condition alone, the bi-encoder sentences."
        )
    if encoding.reads == "sentences" and loss != "mse":
        raise RecipeError("Without its condition a pair has one score, so Quad has nothing to learn: set objective.loss=mse.")


def _check_numbers(recipe: ConditionalRecipe) -> None:
    training, scaled = recipe.training, recipe.encoding.scaled
    if training.batch_size < 2 or training.batch_size % 2:
        raise RecipeError(f"training.batch_size={training.batch_size} must be even: both rows of a pair stand in one batch.")
    if training.head_learning_rate is not None and training.head_learning_rate <= 0:
        raise RecipeError(f"training.head_learning_rate={training.head_learning_rate:g} must be above 0.")
    if training.max_grad_norm <= 0:
        raise RecipeError("training.max_grad_norm must be above 0: gradients are clipped.")
    objective = recipe.objective
    weights = (objective.margin, objective.quad_weight, objective.mse_weight)
    if min(weights) < 0 or objective.quad_weight == objective.mse_weight == 0:
        raise RecipeError(
            "objective.margin and the weights must be 0 or more, and one weight above 0: nothing is learned otherwise."
        )
    numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in scaled)
    if len(scaled) != 2 or not numbers or scaled[0] >= scaled[1]:
        raise RecipeError(f"encoding.scaled must be two numbers, the lower first, such as [0, 1]; not {list(scaled)}.")
