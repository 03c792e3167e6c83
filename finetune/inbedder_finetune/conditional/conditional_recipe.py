"""Recipes of conditional similarity (``method: conditional``): which encoder learns which rated pairs, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from inbedder.conditional.config import Encoding
from inbedder.errors import RecipeError
from inbedder.prompting.templates import get_template
from inbedder_finetune.recipe import Above0, AtLeast0, Count, Lora, Schedule, Section, Whole, checked


@dataclass(frozen=True)
class ConditionalData(Section):
    """What is learned from; the columns stand in ``inbedder.conditional.rated_rows``."""

    train: str = "csts-captions.csv"
    """File of the learned rows, relative to ``folder`` or, when it is not there, to the shipped ``finetune/written``; where it
    has a column split, those of "train"."""
    validation: str | None = "csts-captions.csv"
    """File of the rows that each epoch is measured on; where it has a column split, those of "validation". None measures none."""
    development: Whole = 0
    """So many pairs of sentences of ``train`` are not learned but measured after each epoch, where ``validation`` is None. They
    are drawn by pair, never by row, and are the same whatever the seed of training."""
    folder: str = "."
    """Where the files lie."""
    pairs: Count | None = None
    """Learn only so many pairs, drawn with the recipe's seed (paper, figure 3)."""
    skip_bad: bool = False
    """Leave out bad rows instead of stopping at the first."""


@dataclass(frozen=True)
class ConditionalObjective(Section):
    """What is minimised (``losses``); the scaling of ratings is ``encoding.scaled``."""

    loss: Literal["mse", "quad", "quad+mse"] = "mse"
    """"mse", "quad" or "quad+mse"; the cross-encoder has "mse" alone. "quad" leaves out pairs without order, to which "quad+mse"
    applies MSE alone."""
    margin: AtLeast0 = 1.0
    """Margin of Quad."""
    quad_weight: AtLeast0 = 1.0
    """Weight of Quad in "quad+mse"."""
    mse_weight: AtLeast0 = 1.0
    """Weight of MSE in "quad+mse"."""


@dataclass(frozen=True)
class ConditionalSchedule(Schedule):
    """The paper's schedule (its tables 7 and 8); ``batch_size`` is even: both rows of a pair stand in one batch."""

    output: str = "runs/conditional"
    epochs: Above0 = 3.0
    batch_size: Count = 32
    learning_rate: Above0 = 3e-5
    head_learning_rate: Above0 | None = None
    """Of what stands behind the pooler, which begins at random; None is ``learning_rate``, as in the paper."""
    max_grad_norm: Above0 = 1.0
    """Gradients are clipped to this length (the authors' script turns clipping off)."""
    log_steps: Count = 10
    report_to: Literal["none", "tensorboard"] = "none"
    """"none" or "tensorboard"."""


@dataclass(frozen=True)
class ConditionalRecipe(Section):
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
    recipe = checked(ConditionalRecipe, dict(values))
    _check_encoding(recipe)
    objective, scaled = recipe.objective, recipe.encoding.scaled
    if recipe.data.development and recipe.data.validation is not None:
        raise RecipeError(
            f"data.development={recipe.data.development} sets rows of data.train aside to be measured, and data.validation="
            f"{recipe.data.validation} names others: set data.validation=null, or data.development=0."
        )
    if recipe.training.batch_size % 2:
        raise RecipeError(
            f"training.batch_size={recipe.training.batch_size} must be even: both rows of a pair stand in one batch."
        )
    if objective.quad_weight == objective.mse_weight == 0:
        raise RecipeError("One of objective.quad_weight and objective.mse_weight must be above 0: nothing is learned otherwise.")
    if len(scaled) != 2 or scaled[0] >= scaled[1]:
        raise RecipeError(f"encoding.scaled must be two numbers, the lower first, such as [0, 1]; not {list(scaled)}.")
    return recipe


def _check_encoding(recipe: ConditionalRecipe) -> None:
    encoding, loss = recipe.encoding, recipe.objective.loss
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
