"""Recipes of answering: what is read, what is minimised, how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from inbedder.errors import RecipeError
from inbedder.prompting.stopwords import StopwordList
from inbedder.prompting.templates import get_template
from inbedder_finetune.answering.objectives import ObjectiveSettings, make_objectives
from inbedder_finetune.recipe import (
    SHARED,
    Count,
    Lora,
    Schedule,
    Section,
    Seed,
    Share,
    Whole,
    checked,
    with_sources,
)
from inbedder_finetune.sources import Source


@dataclass(frozen=True)
class AnsweringData(Section):
    """What is learned from."""

    sources: tuple[Source, ...]
    """The files."""
    folder: str = "."
    """Where they lie."""
    strip_stopwords: bool = True
    """Strip stopwords from the answers (paper, section 4.4)."""
    stopwords: StopwordList = "ours"
    """Which words: "ours" keeps negations and quantities and drops punctuation; "nltk", the paper's, is NLTK's whole English
    list, negations among it, and keeps clitics and punctuation."""
    max_characters: Count | None = None
    """Leave out rows whose input is longer; a source may say otherwise."""
    same_texts: bool = False
    """Let all sources of one file draw the same texts, and put the same two side by side from either file (``beside``), so that
    several questions meet over one text; composed files then give their first rows."""
    skip_bad: bool = False
    """Skip rows that cannot be read instead of stopping at the first."""
    held_out: Whole = 0
    """So many drawn rows are not learned but give the loss of every ``training.eval_steps`` steps."""
    seed: Seed | None = None
    """Seed of what is drawn from the sources; None is ``training.seed``. Runs of several seeds that share it learn the same
    rows, so that what is computed per row (a teacher's vectors) is computed once."""
    cache: str | None = "~/.cache/inbedder/examples"
    """Folder of tokenized examples, found again by what made them; null keeps none."""


@dataclass(frozen=True)
class AnsweringSchedule(Schedule):
    """The schedule of answering; the rate is the paper's for full fine-tuning, ``batch_size`` counts over all devices."""

    output: str = "runs/answering"
    warmup: Share = 0.03
    micro_batch: Count | None = None
    """Rows that one device holds at once; None is as many as fit into memory. Fewer take longer and learn the same."""
    group: Count = 1
    """Put up to so many rows about one text, or under one question, side by side as hard negatives; 1 does not."""
    share_texts: bool = False
    """Causal LMs: read a text once for all its questions that stand side by side (``packing``); ``group`` then counts these."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: slower, with less memory."""
    fsdp: bool = False
    """Shard weights, gradients and optimizer over the processes (GPUs); ``fsdp.yaml`` is the same for accelerate."""
    dropout: Share | None = None
    """Dropout of the model's own layers; None keeps the model's."""
    freeze: str | None = None
    """Regular expression of parameters that stay as they are, such as embeddings (searched in their names)."""
    attention: str | None = None
    """transformers' attn_implementation; "eager" trains faster than "sdpa" on a CPU with short texts."""
    eval_steps: Count = 500
    """Steps between losses of the held-out rows."""
    report_to: Literal["none", "tensorboard"] = "none"
    """"none" or "tensorboard"."""


@dataclass(frozen=True)
class AnsweringRecipe(Section):
    """A whole run."""

    model: str
    """Hub id, folder, or all-MiniLM-L6-v2 for the bundled base."""
    data: AnsweringData
    """What is learned from."""
    training: AnsweringSchedule = field(default_factory=AnsweringSchedule)
    """How long and how fast."""
    lora: Lora | None = None
    """Adapters; None trains all weights."""
    quantization: Literal["int8", "nf4"] | None = None
    """"int8" or "nf4" of the frozen weights under the adapters (QLoRA)."""
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    """What is minimised."""
    template: str | None = None
    """Prompt template, as in ``InBedder``."""
    max_length: Count = 512
    """Longest prompt in tokens, answer included."""
    mask_length: int | str = 3
    """Masked LMs: how many masks stand for the answer; "answer" takes as many as the answer has tokens (the paper's way)."""
    late_interaction: bool = False
    """BERT as a masked LM: read text and question apart, the masks alone attend to both, so that a text is read once for
    all its questions (``inbedder/backbones/late_interaction.py``)."""
    answer_prefix: str = ""
    """What stands between prompt and answer, which are tokenized as one string: "" as in the authors' code; a space for models
    whose words begin with one (GPT-2's, Llama 3's, SmolLM's). The answers of encoder-decoders stand alone, without it."""
    max_answer_tokens: Count = 40
    """Answers are cut to so many tokens (never, with a fixed number of masks, beyond those)."""


def parse_recipe(values: Mapping[str, Any]) -> AnsweringRecipe:
    """Build a recipe of nested tables.

    Args:
        values: What the YAML file holds.

    Returns:
        The recipe.

    Raises:
        RecipeError: When a setting is unknown, missing, out of range, or fits no other.
    """
    ready = {key: value for key, value in values.items() if key not in SHARED}
    ready["data"] = with_sources(ready.get("data"), values)
    recipe = checked(AnsweringRecipe, ready)
    if any(bool(source.path) == bool(source.hub) for source in recipe.data.sources):
        raise RecipeError("Each of data.sources needs a path or a hub id, one of both.")
    if recipe.mask_length != "answer" and not (isinstance(recipe.mask_length, int) and recipe.mask_length >= 1):
        raise RecipeError(f"mask_length must be at least 1, or answer; not {recipe.mask_length!r}.")
    if recipe.late_interaction and (recipe.mask_length == "answer" or recipe.training.attention):
        raise RecipeError(
            "late_interaction takes a fixed mask_length, and brings an attention of its own: leave training.attention out."
        )
    if recipe.late_interaction and not get_template(recipe.template).text_first:
        raise RecipeError("late_interaction reads the text first: choose a template with {input} before {instruction}.")
    objectives = make_objectives(recipe.objective)
    if not any(objective.is_active for objective in objectives):
        raise RecipeError("Nothing is minimised: give objective.token_weight or objective.reencode_weight a weight above 0.")
    for objective in objectives:
        objective.check_sources(recipe.data.sources)
    if recipe.quantization and recipe.lora is None:
        raise RecipeError("Quantized weights cannot be trained themselves: give the recipe a lora section (QLoRA).")
    if recipe.training.micro_batch is not None and recipe.training.batch_size % recipe.training.micro_batch:
        raise RecipeError("training.batch_size must be a whole number of training.micro_batch.")
    return recipe
