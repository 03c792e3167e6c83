"""Ways of training: what a recipe's ``method`` names. Each is a module with the same three functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from inbedder.errors import RecipeError
from inbedder_finetune.recipe import read_settings

METHODS = {
    "answering": "inbedder_finetune.answering.train_answering",
    "contrastive": "inbedder_finetune.contrastive.train_contrastive",
    "conditional": "inbedder_finetune.conditional.train_conditional",
}
"""Method -> module; ``answering`` is meant where a recipe names none."""


class Method(Protocol):
    """What the module of a method offers."""

    def parse_recipe(self, values: Mapping[str, Any]) -> Any:
        """Check the recipe's nested tables and build the recipe of them."""

    def preview(self, recipe: Any) -> str:
        """What would be learned; nothing is trained or written."""

    def finetune(self, recipe: Any) -> Path:
        """Train, and return the folder of the result."""


def read_method(path: Path | str, overrides: Sequence[str] = ()) -> tuple[Method, Any]:
    """Read a recipe of any method.

    Args:
        path: The YAML file.
        overrides: ``section.key=value`` settings, the value written as YAML.

    Returns:
        The method's module, and the recipe for its functions.

    Raises:
        RecipeError: When the recipe cannot be read or names a method that does not exist.
    """
    values = read_settings(path, overrides)
    name = values.pop("method", "answering")
    if name not in METHODS:
        raise RecipeError(f"The recipe's method is {name!r}; choose one of: {', '.join(METHODS)}.")
    method = cast(Method, import_module(METHODS[name]))
    return method, method.parse_recipe(values)
