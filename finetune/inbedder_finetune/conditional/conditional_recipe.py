"""Recipes of the method ``conditional``: encoder, data, objective and schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from inbedder.conditional.config import Encoding
from inbedder.errors import RecipeError
from inbedder.prompting.templates import get_template
from inbedder_finetune.recipe import (
    Lora,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Schedule,
    Section,
    UserPath,
    validate_settings,
)


@dataclass(frozen=True)
class ConditionalData(Section):
    """Training data; ``inbedder.conditional.rated_rows`` describes the columns.

    With ``encoding.reads: sentences`` a file needs no column condition. Without it, ratings are from 0 to 5, as in STS-B.
    """

    train: str = "csts-captions.csv"
    """File of the training rows, relative to ``folder``; a file missing there is looked up in the shipped ``finetune/written``.
    With a column split, the rows of "train"."""
    validation: str | None = "csts-captions.csv"
    """File of the validation rows, scored after each epoch; with a column split, the rows of "validation". None scores none."""
    development_pairs: NonNegativeInt = 0
    """Number of sentence pairs of ``train`` that are kept out of training and scored after each epoch, when ``validation`` is
    None. They do not depend on the training seed."""
    folder: UserPath = "."
    """Folder of the files."""
    pairs: PositiveInt | None = None
    """Number of training pairs, sampled with the recipe's seed (paper, figure 3); None takes all."""
    allow_overlap: bool = False
    """Accept validation rows whose two sentences are also in the training rows, as in STS-B (7 of 1,500)."""
    skip_bad: bool = False
    """Skip bad rows instead of stopping at the first."""


@dataclass(frozen=True)
class ConditionalObjective(Section):
    """Loss and its weights (``conditional_losses``); ``encoding.scaled`` scales the ratings."""

    loss: Literal["mse", "quad", "quad+mse"] = "mse"
    """Loss: "mse", "quad" or "quad+mse". The cross-encoder takes "mse" only. Pairs without order are skipped by "quad" and have
    only MSE terms with "quad+mse"."""
    margin: NonNegativeFloat = 1.0
    """Margin of Quad."""
    quad_weight: NonNegativeFloat = 1.0
    """Weight of Quad in "quad+mse"."""
    mse_weight: NonNegativeFloat = 1.0
    """Weight of MSE in "quad+mse"."""


@dataclass(frozen=True)
class ConditionalSchedule(Schedule):
    """Training settings of the paper (its tables 7 and 8).

    Rows are drawn at random. With Quad, both rows of a pair are in one batch, so that ``batch_size`` must be even.
    """

    output: UserPath = "runs/conditional"
    epochs: PositiveFloat = 3.0
    batch_size: PositiveInt = 32
    learning_rate: PositiveFloat = 3e-5
    head_learning_rate: PositiveFloat | None = None
    """Learning rate of the randomly initialized layers after the pooler; None takes ``learning_rate``, as in the paper."""
    max_grad_norm: NonNegativeFloat = 1.0
    """Maximum gradient norm; 0 does not clip, as in the authors' script."""
    log_steps: PositiveInt = 10


@dataclass(frozen=True)
class ConditionalRecipe(Section):
    """Recipe of a run that trains a conditional encoder."""

    model: str = "all-MiniLM-L6-v2"
    """A BERT-like model: hub id, folder, or the bundled base."""
    encoding: Encoding = field(default_factory=Encoding)
    """The encoder."""
    data: ConditionalData = field(default_factory=ConditionalData)
    """Training data."""
    objective: ConditionalObjective = field(default_factory=ConditionalObjective)
    """Loss and its weights."""
    training: ConditionalSchedule = field(default_factory=ConditionalSchedule)
    """Training settings."""
    lora: Lora | None = None
    """Adapters, which are merged into the saved weights; None trains all weights."""


def parse_recipe(values: Mapping[str, Any]) -> ConditionalRecipe:
    """Validate nested tables and build a recipe.

    Args:
        values: Content of the YAML file, without ``method``.

    Returns:
        The recipe.

    Raises:
        RecipeError: If a setting is unknown, of another type, or contradicts another.

    Example:
        >>> parse_recipe({"encoding": {"kind": "bi"}}).objective.loss
        'mse'
    """
    recipe = validate_settings(ConditionalRecipe, dict(values))
    _check_encoding(recipe)
    objective, scaled = recipe.objective, recipe.encoding.scaled
    if recipe.data.development_pairs and recipe.data.validation is not None:
        raise RecipeError(
            f"data.development_pairs={recipe.data.development_pairs} and data.validation={recipe.data.validation} both choose "
            "validation rows: set data.validation=null, or data.development_pairs=0."
        )
    if recipe.training.batch_size % 2 and objective.loss != "mse":
        raise RecipeError(
            f"training.batch_size={recipe.training.batch_size} must be even for Quad, so that a batch holds both rows of a pair."
        )
    if objective.quad_weight == objective.mse_weight == 0:
        raise RecipeError("Set objective.quad_weight or objective.mse_weight above 0; otherwise there is no loss.")
    if len(scaled) != 2 or scaled[0] >= scaled[1]:
        raise RecipeError(f"encoding.scaled must be two numbers, the lower first, such as [0, 1]; not {list(scaled)}.")
    return recipe


def _check_encoding(recipe: ConditionalRecipe) -> None:
    encoding, loss = recipe.encoding, recipe.objective.loss
    get_template(encoding.template)
    if encoding.kind == "cross" and loss != "mse":
        raise RecipeError(
            f"objective.loss={loss} needs the vectors of both sentences, which a cross-encoder does not have: set it to mse."
        )
    readable = {"cross": ("all", "sentences", "condition"), "bi": ("all", "sentences"), "tri": ("all",)}[encoding.kind]
    if encoding.reads not in readable:
        raise RecipeError(
            f"encoding.reads={encoding.reads} is not an ablation of the {encoding.kind}-encoder. The cross-encoder can read only "
            "the sentences or only the condition, the bi-encoder only the sentences."
        )
    if encoding.reads == "sentences" and loss != "mse":
        raise RecipeError("Without the condition a pair has one score, so Quad cannot be computed: set objective.loss=mse.")
