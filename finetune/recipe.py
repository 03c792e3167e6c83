"""Recipes: one YAML file that says which model learns to answer from which data, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from inbedder.errors import RecipeError

Section = TypeVar("Section")
SHARED = ("questions", "answers")
"""Tables that a recipe file may hold for YAML anchors; nothing reads them."""


@dataclass(frozen=True)
class Source:
    """One set of question-answer rows: a file (jsonl, jsonl.gz, json, csv, tsv, parquet) or a set of the hub."""

    path: str = ""
    """File, relative to ``data.folder`` or, when it is not there, to the shipped ``finetune/written``."""
    hub: str | None = None
    """Id on the hub, in place of a file."""
    config: str | None = None
    """Configuration of the hub's set."""
    split: str = "train"
    """Split of the hub's set."""
    revision: str | None = None
    """Commit of the hub's set."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Where input, instruction and output stand, when they have other names."""
    cap: int | None = None
    """At most so many rows, drawn with the recipe's seed."""
    weight: float = 1.0
    """Each row comes so often: 2 is twice, 0.5 a drawn half."""
    min_characters: int = 0
    """Leave out rows whose input is shorter."""
    max_characters: int | None = None
    """Leave out rows whose input is longer."""
    keep: Mapping[str, str] = field(default_factory=dict)
    """Keep only rows whose fields hold these values, such as ``{split: train}``."""
    drop_flags: tuple[str, ...] = ()
    """Leave out rows whose ``flags`` hold one of these, such as needs_options."""
    choices: str | None = None
    """Multiple choice: the field that lists the choices; the answer field then holds the right one's number or letter."""
    licence: str | None = None
    """Licence of the data, for the card."""
    instructions: tuple[str, ...] = ()
    """When given, each row is asked one of these (drawn) in place of its own instruction."""
    only: tuple[str, ...] = ()
    """When given, only rows that carry one of these instructions."""
    answer_from: str = "output"
    """The field that holds the answer, such as a label of another criterion."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """When given, the answers are renamed by this table and rows with other answers are left out."""
    keywords: int = 0
    """When above 0, the answer is so many most salient words of the input (``keywords``), for questions of topic."""
    beside: str | None = None
    """When given, a file whose inputs are put in front of or behind the row's own, one each: the answer stays."""
    questions: int = 2
    """Questions per composed text (yaml files of phrases)."""
    long: bool = False
    """Composed opinions of about fifteen sentences in place of six."""
    target: str = "answer"
    """What the vector is drawn to: "answer", "text" (the row's own text: what it is about stays whole) or "both"."""
    per_text: int | None = None
    """At most so many rows per text."""


@dataclass(frozen=True)
class Data:
    """What is learned from."""

    sources: tuple[Source, ...]
    """The files."""
    folder: str = "."
    """Where they lie."""
    strip_stopwords: bool = True
    """Strip stopwords from the answers (paper, section 4.4)."""
    max_characters: int | None = None
    """Leave out rows whose input is longer; a source may say otherwise."""
    same_texts: bool = False
    """Let all sources of one file draw the same texts, and put the same two side by side from either file (``beside``), so that
    several questions meet over one text; composed files then give their first rows."""
    skip_bad: bool = False
    """Skip rows that cannot be read instead of stopping at the first."""
    held_out: int = 0
    """So many drawn rows are not learned but give the loss of every ``training.eval_steps`` steps."""
    cache: str | None = "~/.cache/inbedder/examples"
    """Folder of tokenized examples, found again by what made them; null keeps none."""


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
class Objective:
    """What is minimised: answer-token cross-entropy, and what draws the vector to the re-encoded answer (``losses``)."""

    token_weight: float = 1.0
    """Weight of the answer tokens' cross-entropy."""
    reencode_weight: float = 0.0
    """Weight of the amortised re-encoding: the pooled vector is drawn to the re-encoder's vector of the answer."""
    reencode_loss: str = "info_nce"
    """"info_nce" (apart from the batch's other answers) or "cosine" (alone)."""
    pooling: str | None = None
    """Which vector is drawn: "1st-gen" or "avg-gen"; None is the family's default."""
    temperature: float = 0.05
    """Temperature of InfoNCE."""
    alike: float = 1.0
    """Answers of another row whose vectors have at least this cosine with a row's own are not its negatives (InfoNCE)."""
    cosine_weight: float = 0.0
    """How much of 1 - cosine is added to InfoNCE."""
    reencoder: str = "all-MiniLM-L6-v2"
    """The frozen sentence-transformers model that embeds answers."""


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


@dataclass(frozen=True)
class Training(Schedule):
    """The schedule of answering; the rate is the paper's for full fine-tuning, ``batch_size`` counts over all devices."""

    output: str = "runs/answering"
    warmup: float = 0.03
    micro_batch: int | None = None
    """Rows that one device holds at once; None is all of its share. Smaller accumulates gradients."""
    group: int = 1
    """Put up to so many rows about one text, or under one question, side by side as hard negatives; 1 does not."""
    share_texts: bool = False
    """Causal LMs: read a text once for all its questions that stand side by side (``packing``); ``group`` then counts these."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: slower, with less memory."""
    fsdp: bool = False
    """Shard weights, gradients and optimizer over the processes (GPUs); ``finetune/fsdp.yaml`` is the same for accelerate."""
    dropout: float | None = None
    """Dropout of the model's own layers; None keeps the model's."""
    freeze: str | None = None
    """Regular expression of parameters that stay as they are, such as embeddings (searched in their names)."""
    attention: str | None = None
    """transformers' attn_implementation; "eager" trains faster than "sdpa" on a CPU with short texts."""
    eval_steps: int = 500
    """Steps between losses of the held-out rows."""
    report_to: str = "none"
    """"none" or "tensorboard"."""


@dataclass(frozen=True)
class Recipe:
    """A whole run."""

    model: str
    """Hub id, folder, or all-MiniLM-L6-v2 for the bundled base."""
    data: Data
    """What is learned from."""
    training: Training = field(default_factory=Training)
    """How long and how fast."""
    lora: Lora | None = None
    """Adapters; None trains all weights."""
    quantization: str | None = None
    """"int8" or "nf4" of the frozen weights under the adapters (QLoRA)."""
    objective: Objective = field(default_factory=Objective)
    """What is minimised."""
    template: str | None = None
    """Prompt template, as in ``InBedder``."""
    max_length: int = 512
    """Longest prompt in tokens, answer included."""
    mask_length: int | str = 3
    """Masked LMs: how many masks stand for the answer; "answer" takes as many as the answer has tokens (the paper's way)."""
    answer_prefix: str = ""
    """What stands in front of each answer: a space for vocabularies whose words begin with one (GPT-2's, Llama 3's, SmolLM's)."""
    max_answer_tokens: int = 40
    """Answers are cut to so many tokens (never, with a fixed number of masks, beyond those)."""


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


def parse_recipe(values: Mapping[str, Any]) -> Recipe:
    """Build a recipe of nested tables.

    Args:
        values: What the YAML file holds.

    Returns:
        The recipe.

    Raises:
        RecipeError: When a setting is unknown or missing.
    """
    ready = {key: value for key, value in values.items() if key not in SHARED}
    data = ready.get("data") or {}
    if not isinstance(data, Mapping):
        raise RecipeError(f"data must be a table of settings, not {data!r}.")
    data = dict(data)
    listed = data.get("sources") or []
    if not isinstance(listed, (list, tuple)):
        raise RecipeError(f"data.sources must be a list of files or tables, not {listed!r}.")
    sources = [{"path": one} if isinstance(one, str) else one for one in listed]
    if not sources:
        raise RecipeError("The recipe names no data: give data.sources, a list of files.")
    data["sources"] = tuple(build(Source, one, "data.sources") for one in sources)
    if any(bool(one.path) == bool(one.hub) for one in data["sources"]):
        raise RecipeError("Each of data.sources needs a path or a hub id, one of both.")
    ready["data"] = build(Data, data, "data")
    ready["training"] = build(Training, ready.get("training") or {}, "training")
    ready["objective"] = build(Objective, ready.get("objective") or {}, "objective")
    if ready.get("lora") is not None:
        ready["lora"] = build(Lora, ready["lora"], "lora")
    recipe = build(Recipe, ready, "The recipe")
    if recipe.mask_length != "answer" and not (isinstance(recipe.mask_length, int) and recipe.mask_length >= 1):
        raise RecipeError(f"mask_length must be at least 1, or answer; not {recipe.mask_length!r}.")
    _check_choices(recipe)
    return recipe


def _check_choices(recipe: Recipe) -> None:
    """Refuse names that do not exist before anything is read."""
    for name, value, known in (
        ("objective.reencode_loss", recipe.objective.reencode_loss, ("info_nce", "cosine")),
        ("objective.pooling", recipe.objective.pooling, (None, "1st-gen", "avg-gen")),
        ("quantization", recipe.quantization, (None, "int8", "nf4")),
        *(("data.sources: target", source.target, ("answer", "text", "both")) for source in recipe.data.sources),
        ("training.report_to", recipe.training.report_to, ("none", "tensorboard")),
    ):
        if value not in known:
            raise RecipeError(f"{name} is {value!r}; choose one of: {', '.join(str(one) for one in known)}.")
    if recipe.objective.token_weight <= 0 and recipe.objective.reencode_weight <= 0:
        raise RecipeError("Nothing is minimised: give objective.token_weight or objective.reencode_weight a weight above 0.")
    if recipe.quantization and recipe.lora is None:
        raise RecipeError("Quantized weights cannot be trained themselves: give the recipe a lora section (QLoRA).")
    micro = recipe.training.micro_batch
    if recipe.training.batch_size < 1 or (micro is not None and (micro < 1 or recipe.training.batch_size % micro)):
        raise RecipeError("training.batch_size must be a whole number of training.micro_batch.")


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


def read_recipe(path: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe of answering, as ``read_settings`` and ``parse_recipe`` do.

    Args:
        path: The YAML file.
        overrides: ``section.key=value`` settings, the value written as YAML.

    Returns:
        The recipe.

    Raises:
        RecipeError: When the file cannot be read or a setting is not understood.
    """
    return parse_recipe(read_settings(path, overrides))


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
