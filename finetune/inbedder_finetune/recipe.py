"""Recipes: the YAML files that describe a training run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import yaml
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from inbedder.errors import RecipeError
from inbedder.runtime.package_data import find_data_folder
from inbedder.runtime.user_paths import expand_name, expand_path
from inbedder_finetune.questions import read_questions

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

AnySection = TypeVar("AnySection")
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
DropoutRate = Annotated[float, Field(ge=0, lt=1)]
UserPath = Annotated[str, AfterValidator(expand_name)]
"""A path, in which ``~`` is expanded."""
RECIPES = find_data_folder("inbedder_finetune", "recipes")
SHARED_TABLES = ("questions", "answers")
"""Top-level tables of a recipe that sources refer to by name; they may also hold YAML anchors."""


@dataclass(frozen=True)
class Section:
    """Base of all recipe sections; it rejects unknown settings, NaN and infinity."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class Lora(Section):
    """Low-rank adapters (peft)."""

    r: PositiveInt = 64
    """Rank."""
    alpha: PositiveInt = 128
    """Scaling numerator: adapters are scaled by alpha / r."""
    dropout: DropoutRate = 0.0
    """Dropout of the adapters' inputs."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """peft's target_modules: a regular expression, names, or all-linear."""
    modules_to_save: tuple[str, ...] = ()
    """Modules trained in full, such as a new answer head."""
    bias: Literal["none", "all", "lora_only"] = "none"
    """Biases that are also trained: none, all, or those of the layers with adapters."""
    init_adapter: UserPath | None = None
    """Folder of an adapter of the same shape, or name of a bundled model, whose weights initialize the new one; None initializes
    at random."""
    save_dtype: Literal["float32", "float16"] = "float32"
    """Dtype of the saved weights; float16 halves the file."""


@dataclass(frozen=True)
class Schedule(Section):
    """Training settings shared by all methods; each method has its own defaults."""

    output: UserPath = "runs"
    """Folder of the checkpoints and the result."""
    epochs: PositiveFloat = 1.0
    """Passes over the data."""
    max_steps: PositiveInt | None = None
    """Maximum number of steps; None trains all epochs."""
    batch_size: PositiveInt = 64
    """Rows per step."""
    learning_rate: PositiveFloat = 2e-5
    """Peak learning rate of AdamW."""
    warmup: Share = 0.1
    """Warm-up, as a share of all steps; it is shorter than the run."""
    scheduler: Literal["linear", "cosine", "polynomial", "inverse_sqrt", "constant_with_warmup"] = "linear"
    """transformers' schedule of the learning rate after the warm-up."""
    weight_decay: NonNegativeFloat = 0.0
    """AdamW's weight decay."""
    bf16: bool | None = None
    """Whether to train in bfloat16 autocast; None decides by the device."""
    save_steps: PositiveInt = 500
    """Steps between checkpoints."""
    log_steps: PositiveInt = 50
    """Steps between logged losses; short runs log at least ten."""
    report_to: str | tuple[str, ...] = "none"
    """Where losses are reported: "none", or transformers' integrations, such as tensorboard, wandb, mlflow or trackio."""
    seed: Seed = 0
    """Seed of sampling, row order, dropout and new weights."""


def validate_settings(kind: type[AnySection], values: object) -> AnySection:
    """Validate settings against the dataclass that describes them, and build it.

    Args:
        kind: A dataclass, such as ``AnsweringRecipe``.
        values: Nested settings, as YAML holds them.

    Returns:
        The recipe or section.

    Raises:
        RecipeError: If a setting is unknown, missing, of another type or out of range; the message names the first one.

    Example:
        >>> validate_settings(Lora, {"r": 8, "alpha": 16}).r
        8
    """
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = min(error.errors(include_url=False), key=lambda details: details["type"] != "unexpected_keyword_argument")
        raise RecipeError(_explain_error(first, kind)) from error


def validate_recipe(kind: type[AnySection], values: Mapping[str, Any]) -> AnySection:
    """Expand the sources of a recipe (``expand_sources``), validate it and build it.

    Args:
        kind: The dataclass of the recipe.
        values: Content of the YAML file.

    Returns:
        The recipe.

    Raises:
        RecipeError: If the sources or another setting cannot be used.
    """
    settings = {key: value for key, value in values.items() if key not in SHARED_TABLES}
    return validate_settings(kind, settings | {"data": expand_sources(settings.get("data"), values)})


def expand_sources(data: object, values: Mapping[str, Any]) -> dict[str, Any]:
    """Expand the sources of a recipe's section ``data`` to tables.

    Args:
        data: The section; a source may be just a file name. Its ``sources`` are followed by those of its named ``groups``, whose
            caps ``shares`` multiplies: a share of 0 leaves a group out.
        values: The whole recipe, including its ``SHARED_TABLES``.

    Returns:
        The section, not validated yet.

    Raises:
        RecipeError: If the section is not a table, has no sources, or a source names a missing table.
    """
    if data is not None and not isinstance(data, Mapping):
        raise RecipeError(f"data must be a table of settings, not {data!r}.")
    section = dict(data or {})
    sources = _take_groups(section)
    if not sources:
        raise RecipeError("The recipe names no data: set data.sources to a list of files, or data.groups to named lists.")
    tables = [{"path": source} if isinstance(source, str) else source for source in sources]
    section["sources"] = [_resolve_tables(table, values) if isinstance(table, Mapping) else table for table in tables]
    return section


def _take_groups(section: dict[str, Any]) -> list[Any]:
    """Take the groups out of a section ``data``, and return their sources with those outside of groups."""
    sources = section.pop("sources", None) or []
    if not isinstance(sources, (list, tuple)):
        raise RecipeError(f"data.sources must be a list of files or tables, not {sources!r}.")
    groups, shares = (section.pop(name, None) or {} for name in ("groups", "shares"))
    if not isinstance(groups, Mapping) or not all(isinstance(group, (list, tuple)) for group in groups.values()):
        raise RecipeError("data.groups must be a table of named lists of sources.")
    if not isinstance(shares, Mapping) or (unknown := sorted(shares.keys() - groups.keys())):
        hint = f"; it has no {unknown[0]!r}" if isinstance(shares, Mapping) else ""
        raise RecipeError(f"data.shares must name groups ({', '.join(groups) or 'none'}){hint}.")
    grouped = [
        _scale_cap(source, shares.get(name, 1)) for name, group in groups.items() for source in group if shares.get(name, 1)
    ]
    return [*sources, *grouped]


def _scale_cap(source: Mapping[str, Any] | str, share: float) -> dict[str, Any]:
    """Multiply the cap of a source by the share of its group."""
    table: dict[str, Any] = {"path": source} if isinstance(source, str) else dict(source)
    if share != 1:
        if "cap" not in table:
            raise RecipeError(f"data.shares scales caps, and {table.get('path')} has no cap. Add one.")
        table["cap"] = max(1, round(table["cap"] * share))
    return table


def _resolve_tables(source: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the names of questions and answers in a source by the recipe's tables, or by those of ``finetune/questions``."""
    resolved = dict(source)
    for key, section in (("instructions", "questions"), ("keep_instructions", "questions"), ("answers", "answers")):
        if isinstance(name := resolved.get(key), str):
            field = "ask" if section == "questions" else "answers"
            shipped = {question: table for question in read_questions() if (table := getattr(read_questions()[question], field))}
            tables = {**shipped, **(values.get(section) or {})}
            if name not in tables:
                raise RecipeError(f"data.sources: {key} names {name!r}; the known {section} are: {', '.join(tables)}.")
            resolved[key] = tables[name]
    return resolved


def _explain_error(error: ErrorDetails, kind: type) -> str:
    """Explain a pydantic error in the terms of recipes."""
    *sections, setting = error["loc"] or ("",)
    key = ".".join(str(part) for part in error["loc"]) or "The recipe"
    value = error["input"]
    if error["type"] == "unexpected_keyword_argument":
        names = ", ".join(field.name for field in fields(_find_section(kind, sections)))
        section = ".".join(str(part) for part in sections) or "The recipe"
        return f"{section} has no setting {setting}. Known settings: {names}."
    if error["type"] == "missing":
        return f"The recipe lacks {key}."
    if error["type"] == "dataclass_type":
        return f"{key} must be a table of settings, not {value!r}."
    if error["type"] == "literal_error":
        choices = error["ctx"]["expected"].replace("'", "")
        return f"{key} is {value!r}; choose one of: {choices}."
    hint = " Quote yes, no, true, false and numbers that are meant as text." if error["type"] == "string_type" else ""
    return f"{key} must {error['msg'].removeprefix('Input should ')}, not {value!r}.{hint}"


def _find_section(kind: Any, path: Sequence[int | str]) -> Any:
    """Find the dataclass of a section by its path of names and list indices."""
    for part in path:
        if isinstance(part, str):
            kind = next(inner for inner in _iterate_types(get_type_hints(kind)[part]) if is_dataclass(inner))
    return kind


def _iterate_types(hint: Any) -> Iterator[Any]:
    """Yield a type and the types nested in it."""
    yield hint
    for inner in get_args(hint):
        yield from _iterate_types(inner)


def find_recipe(path: Path | str) -> Path:
    """Find a recipe file.

    Args:
        path: A file, or the name of a shipped recipe, with or without .yaml.

    Returns:
        Path of the recipe, which may not exist.

    Example:
        >>> find_recipe("csts-bi").name
        'csts-bi.yaml'
    """
    path = expand_path(path)
    if path.parent != Path() or path.exists():
        return path
    return next(RECIPES.glob(f"*/{path.name.removesuffix('.yaml')}.yaml"), path)


def read_settings(path: Path | str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Read a recipe file and apply overrides.

    Args:
        path: The YAML file, or the name of a shipped recipe.
        overrides: ``section.key=value`` settings; the values are YAML.

    Returns:
        Nested tables, not validated. A file that ``extends`` another is merged into it, and the setting ``variant`` names the one
        of ``variants`` that is merged into the others; its name ends ``training.output``.

    Raises:
        RecipeError: If the file cannot be read or a setting cannot be changed.

    Example:
        >>> read_settings("csts-bi", ["training.seed=3"])["training"]["seed"]
        3
    """
    path = find_recipe(path)
    try:
        values: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(f"Cannot read the recipe {path}: {error}") from error
    if not isinstance(values, dict):
        raise RecipeError(f"{path} is not a recipe: it must hold settings such as 'model:' and 'data:'.")
    if "extends" in values:
        values = _merge_settings(read_settings(path.parent / expand_path(str(values.pop("extends")))), values)
    changes = [_split_change(override) for override in overrides]
    if "variants" in values:
        values = _choose_variant({**values, **{key: value for key, value in changes if key == "variant"}}, path)
        changes = [(key, value) for key, value in changes if key != "variant"]
    for key, value in changes:
        _change_setting(values, key, value)
    return dict(values)


def _split_change(override: str) -> tuple[str, str]:
    key, equals, value = override.partition("=")
    if not equals:
        raise RecipeError(f"--set takes key=value, such as training.seed=1, not {override!r}.")
    return key, value


def _choose_variant(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Merge the settings of a recipe's variant into those of the recipe."""
    name, variants = values.pop("variant", None), values.pop("variants")
    if name not in variants:
        raise RecipeError(f"{path.name} has no variant {name!r}. Choose one of: {', '.join(variants)}.")
    values = _merge_settings(values, variants[name])
    values["training"]["output"] += f"-{name}"
    return values


def _merge_settings(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the settings of a recipe into those of the recipe that it extends."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = _merge_settings(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return merged


def _change_setting(values: dict[str, Any], key: str, value: str) -> None:
    """Change one setting in place; a number in the key is a list index, as in data.sources.0.cap."""
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
        raise RecipeError(f"Cannot apply --set {key}={value}: {error}") from error
