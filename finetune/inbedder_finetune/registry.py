"""Training methods, the values of a recipe's ``method``: modules with the same three functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from inbedder.errors import RecipeError
from inbedder_finetune.recipe import read_settings

if TYPE_CHECKING:
    from transformers import TrainerCallback

METHODS = {
    "answering": "inbedder_finetune.answering.train_answering",
    "contrastive": "inbedder_finetune.contrastive.train_contrastive",
    "conditional": "inbedder_finetune.conditional.train_conditional",
}
"""Method -> module; the default is ``answering``."""


class Method(Protocol):
    """Interface of a method's module."""

    def parse_recipe(self, values: Mapping[str, Any]) -> Any:
        """Validate the nested tables of a recipe and build it."""

    def preview(self, recipe: Any) -> str:
        """Describe the training data as the model reads it; train and write nothing."""

    def finetune(self, recipe: Any, *, callbacks: Sequence[TrainerCallback] = ()) -> Path:
        """Train, and return the folder of the result."""


def read_method(path: Path | str, overrides: Sequence[str] = ()) -> tuple[Method, Any]:
    """Read a recipe of any method.

    Args:
        path: The YAML file, or the name of a shipped recipe.
        overrides: ``section.key=value`` settings; the values are YAML.

    Returns:
        The method's module, and the recipe for its functions.

    Raises:
        RecipeError: If the recipe cannot be read or names an unknown method.

    Example:
        >>> method, recipe = read_method("csts-bi", ["training.epochs=2"])
        >>> recipe.training.epochs
        2.0
    """
    values = read_settings(path, overrides)
    name = values.pop("method", "answering")
    if name not in METHODS:
        raise RecipeError(f"Unknown method {name!r}; choose one of: {', '.join(METHODS)}.")
    method = cast(Method, import_module(METHODS[name]))
    return method, method.parse_recipe(values)
