"""Recipes: one YAML file that says which model learns to answer from which data, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from inbedder.errors import RecipeError
from inbedder.package_data import data_folder

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

AnySection = TypeVar("AnySection")
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Above0 = Annotated[float, Field(gt=0)]
AtLeast0 = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
RECIPES = data_folder("inbedder_finetune", "recipes")
SHARED = ("questions", "answers")
"""Tables that a recipe file may hold for its sources to name, or for YAML anchors."""


@dataclass(frozen=True)
class Section:
    """What all sections of recipes share: settings that they do not describe are refused."""

    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Lora(Section):
    """Low-rank adapters (peft)."""

    r: Count = 64
    """Rank."""
    alpha: Count = 128
    """Scale is alpha / r."""
    dropout: Share = 0.0
    """Dropout in front of the adapters."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """peft's target_modules: a regular expression, names, or all-linear."""
    modules_to_save: tuple[str, ...] = ()
    """Modules that are trained whole, such as a new answer head."""
    bias: Literal["none", "all", "lora_only"] = "none"
    """Biases that are trained, too: none, all, or those of the layers with adapters."""
    start: str | None = None
    """Folder of an adapter of the same shape to go on with, such as a first stretch's on other data; None begins anew."""


@dataclass(frozen=True)
class Schedule(Section):
    """How long and how fast, whatever the method; each method has its own defaults."""

    output: str = "runs"
    """Folder of checkpoints and of the result."""
    epochs: Above0 = 1.0
    """Passes over the data."""
    max_steps: int = -1
    """Stop after so many steps; -1 for all epochs."""
    batch_size: Count = 64
    """Rows per step."""
    learning_rate: Above0 = 2e-5
    """Peak learning rate of AdamW."""
    warmup: Share = 0.1
    """Share of the steps that warm up."""
    scheduler: str = "linear"
    """Learning-rate schedule of transformers."""
    weight_decay: AtLeast0 = 0.0
    """AdamW's weight decay."""
    bf16: bool | None = None
    """bfloat16 autocast; None where the device is good at it."""
    save_steps: Count = 500
    """Steps between checkpoints."""
    log_steps: Count = 50
    """Steps between lines of loss; fewer in short runs, for ten lines at least."""
    resume: bool = False
    """Go on from the last checkpoint in ``output``."""
    seed: Seed = 0
    """Seed of sampling, order, dropout and new weights."""


def checked(kind: type[AnySection], values: object) -> AnySection:
    """A recipe, or a section of one, its settings checked by pydantic against the dataclass that describes them.

    Args:
        kind: A dataclass, such as ``AnsweringRecipe``.
        values: Its nested settings, as YAML gives them.

    Returns:
        The recipe.

    Raises:
        RecipeError: When a setting is unknown, missing, of another type or out of range; the first such setting is named.
    """
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = min(error.errors(include_url=False), key=lambda found: found["type"] != "unexpected_keyword_argument")
        raise RecipeError(_explained(first, kind)) from error


def with_sources(data: object, values: Mapping[str, Any]) -> dict[str, Any]:
    """The section ``data`` of a recipe with its sources as tables.

    Args:
        data: The section; a source may be a file's name alone.
        values: The whole recipe, with the tables (``SHARED``) that sources name in ``instructions``, ``only`` and ``answers``.

    Returns:
        The section, to be checked.

    Raises:
        RecipeError: When it is no table, has no sources, or a source names a table that is not there.
    """
    if data is not None and not isinstance(data, Mapping):
        raise RecipeError(f"data must be a table of settings, not {data!r}.")
    ready = dict(data or {})
    listed = ready.get("sources") or []
    if not isinstance(listed, (list, tuple)):
        raise RecipeError(f"data.sources must be a list of files or tables, not {listed!r}.")
    if not listed:
        raise RecipeError("The recipe names no data: give data.sources, a list of files.")
    sources = [{"path": source} if isinstance(source, str) else source for source in listed]
    ready["sources"] = [_with_tables(source, values) if isinstance(source, Mapping) else source for source in sources]
    return ready


def _with_tables(source: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A source whose ``instructions``, ``only`` or ``answers`` are a name, with the table of that name."""
    ready = dict(source)
    for key, section in (("instructions", "questions"), ("only", "questions"), ("answers", "answers")):
        if isinstance(name := ready.get(key), str):
            tables = values.get(section) or {}
            if name not in tables:
                raise RecipeError(
                    f"data.sources: {key} names {name!r}; the recipe's {section} are: {', '.join(tables) or 'none'}."
                )
            ready[key] = tables[name]
    return ready


def _explained(error: ErrorDetails, kind: type) -> str:
    """What pydantic found, in the words of recipes."""
    *sections, setting = error["loc"] or ("",)
    place = ".".join(str(part) for part in error["loc"]) or "The recipe"
    given = error["input"]
    if error["type"] == "unexpected_keyword_argument":
        known = ", ".join(field.name for field in fields(_section_at(kind, sections)))
        where = ".".join(str(part) for part in sections) or "The recipe"
        return f"{where} has no setting {setting}. Known: {known}."
    if error["type"] == "missing":
        return f"The recipe lacks {place}."
    if error["type"] == "dataclass_type":
        return f"{place} must be a table of settings, not {given!r}."
    if error["type"] == "literal_error":
        choices = error["ctx"]["expected"].replace("'", "")
        return f"{place} is {given!r}; choose one of: {choices}."
    hint = " Write yes, no, true, false and numbers in quotes where text is meant." if error["type"] == "string_type" else ""
    return f"{place} must {error['msg'].removeprefix('Input should ')}, not {given!r}.{hint}"


def _section_at(kind: Any, path: Sequence[int | str]) -> Any:
    """The dataclass that describes the section at a path of names and places in lists."""
    for part in path:
        if isinstance(part, str):
            kind = next(inner for inner in _types_in(get_type_hints(kind)[part]) if is_dataclass(inner))
    return kind


def _types_in(hint: Any) -> Iterator[Any]:
    """A type and those that it is made of."""
    yield hint
    for inner in get_args(hint):
        yield from _types_in(inner)


def find_recipe(path: Path | str) -> Path:
    """Where a recipe lies.

    Args:
        path: A file, or the name of a recipe in ``finetune/recipes``, with or without .yaml.

    Returns:
        Its path, which need not exist.
    """
    given = Path(path)
    shipped = RECIPES / f"{given.name.removesuffix('.yaml')}.yaml"
    return shipped if given.parent == Path() and not given.exists() and shipped.is_file() else given


def read_settings(path: Path | str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Read a recipe file and change settings of it.

    Args:
        path: The YAML file, or the name of a shipped recipe.
        overrides: ``section.key=value`` settings, the value written as YAML.

    Returns:
        Nested tables, unchecked; a file that ``extends`` another changes the settings that it names.

    Raises:
        RecipeError: When the file cannot be read or a setting cannot be changed.
    """
    path = find_recipe(path)
    try:
        values: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(f"Cannot read the recipe {path}: {error}") from error
    if not isinstance(values, dict):
        raise RecipeError(f"{path} is not a recipe: it must hold settings such as 'model:' and 'data:'.")
    if "extends" in values:
        values = _over(read_settings(path.parent / str(values.pop("extends"))), values)
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
