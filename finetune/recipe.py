"""Recipes: one YAML file that says which model learns to answer from which data, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from inbedder.errors import RecipeError

Section = TypeVar("Section")
SHARED = ("questions", "answers")
"""Tables that a recipe file may hold for YAML anchors; nothing reads them."""


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters (peft)."""

    r: int = 64
    """Rank."""
    alpha: int = 128
    """Scale is alpha / r."""
    dropout: float = 0.0
    """Dropout in front of the adapters."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """peft's target_modules: a regular expression, names, or all-linear."""
    modules_to_save: tuple[str, ...] = ()
    """Modules that are trained whole, such as a new answer head."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast, whatever the method; each method has its own defaults."""

    output: str = "runs"
    """Folder of checkpoints and of the result."""
    epochs: float = 1.0
    """Passes over the data."""
    max_steps: int = -1
    """Stop after so many steps; -1 for all epochs."""
    batch_size: int = 64
    """Rows a step."""
    learning_rate: float = 2e-5
    """Peak learning rate of AdamW."""
    warmup: float = 0.1
    """Share of the steps that warm up."""
    scheduler: str = "linear"
    """Learning-rate schedule of transformers."""
    weight_decay: float = 0.0
    """AdamW's weight decay."""
    bf16: bool | None = None
    """bfloat16 autocast; None where the device is good at it."""
    save_steps: int = 500
    """Steps between checkpoints."""
    log_steps: int = 50
    """Steps between lines of loss."""
    resume: bool = False
    """Go on from the last checkpoint in ``output``."""
    seed: int = 0
    """Seed of sampling, order, dropout and new weights."""


def build(kind: type[Section], values: object, where: str) -> Section:
    """A section of a recipe, its values checked against the dataclass that describes it.

    Args:
        kind: A dataclass.
        values: Its settings, as YAML gives them.
        where: What to call the section in messages.

    Returns:
        The section.

    Raises:
        RecipeError: When a setting is unknown, missing or of another type.
    """
    if not isinstance(values, Mapping):
        raise RecipeError(f"{where} must be a table of settings, not {values!r}.")
    known = {one.name: str(one.type) for one in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise RecipeError(f"{where} has unknown settings {', '.join(unknown)}. Known: {', '.join(known)}.")
    ready = {key: _convert(value, known[key], f"{where}: {key}") for key, value in values.items()}
    try:
        return kind(**ready)
    except TypeError as error:
        raise RecipeError(f"{where}: {error}") from error


def _convert(value: Any, annotation: str, where: str) -> Any:
    """A value of the annotated type: YAML reads 1e-3 as text and lists where tuples are meant."""
    value = tuple(value) if isinstance(value, list) else value
    kinds = [kind.strip() for kind in annotation.split("|")]
    if value is None and "None" in kinds:
        return None
    if "float" in kinds and not isinstance(value, bool):
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise RecipeError(f"{where} must be a number, not {value!r}.") from error
    python_types = {"int": int, "bool": bool, "str": str, "tuple": tuple, "Mapping": Mapping}
    simple = [python_types[name] for kind in kinds if (name := kind.split("[")[0]) in python_types]
    if (
        isinstance(value, Mapping)
        and not all(isinstance(one, str) for pair in value.items() for one in pair)
        and "str, str" in annotation
    ):
        raise RecipeError(f"{where} must name texts by texts; write yes, no, true, false and numbers in quotes: {dict(value)!r}.")
    right = isinstance(value, tuple(simple)) and (bool in simple or not isinstance(value, bool))
    if simple and not right:
        raise RecipeError(f"{where} must be {annotation}, not {value!r}.")
    return value


def read_settings(path: Path | str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Read a recipe file and change settings of it.

    Args:
        path: The YAML file.
        overrides: ``section.key=value`` settings, the value written as YAML.

    Returns:
        Nested tables, unchecked; a file that ``extends`` another changes the settings that it names.

    Raises:
        RecipeError: When the file cannot be read or a setting cannot be changed.
    """
    try:
        values: Any = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(f"Cannot read the recipe {path}: {error}") from error
    if not isinstance(values, dict):
        raise RecipeError(f"{path} is not a recipe: it must hold settings such as 'model:' and 'data:'.")
    if "extends" in values:
        values = _over(read_settings(Path(path).parent / str(values.pop("extends"))), values)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise RecipeError(f"--set takes key=value, such as training.seed=1; it was given {override!r}.")
        _set(values, key, value)
    return dict(values)


def _over(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of one recipe with those of another over them, section by section."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _over(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return merged


def _set(values: dict[str, Any], key: str, value: str) -> None:
    """Change one setting; a number in the key is a place in a list, such as data.sources.0.cap."""
    *sections, last = key.split(".")
    table: Any = values
    try:
        for section in sections:
            if isinstance(table, list):
                table = table[int(section)]
            else:
                if not isinstance(table.get(section), (dict, list)):
                    table[section] = {}
                table = table[section]
        table[int(last) if isinstance(table, list) else last] = yaml.safe_load(value)
    except (IndexError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise RecipeError(f"--set {key}={value} cannot be done: {error}") from error
