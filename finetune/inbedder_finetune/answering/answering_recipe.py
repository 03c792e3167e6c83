"""Recipes of the method ``answering``: data, objective and schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from inbedder.errors import RecipeError
from inbedder.prompting.stopwords import StopwordList
from inbedder.prompting.templates import get_template
from inbedder_finetune.answering.objectives import ObjectiveSettings, make_objectives
from inbedder_finetune.answering.objectives.base import VectorObjective
from inbedder_finetune.recipe import (
    DropoutRate,
    Lora,
    NonNegativeInt,
    PositiveInt,
    Schedule,
    Section,
    Seed,
    Share,
    UserPath,
    validate_recipe,
)
from inbedder_finetune.sources import Source


@dataclass(frozen=True)
class AnsweringData(Section):
    """Training data."""

    sources: tuple[Source, ...]
    """The sources of rows."""
    folder: UserPath = "."
    """Folder of the files."""
    strip_stopwords: bool = True
    """Strip stopwords from the answers (paper, section 4.4)."""
    stopwords: StopwordList = "ours"
    """The stopword list. "ours" strips punctuation and keeps negations and quantities; "nltk", the paper's, is NLTK's full
    English list: it strips negations and keeps clitics and punctuation."""
    max_characters: PositiveInt | None = None
    """Skip rows whose input is longer; a source may override it."""
    same_texts: bool = False
    """Sample the same texts, with the same distractors, for all sources of one file. Several questions then meet over one text,
    and composed files give their first rows."""
    skip_bad: bool = False
    """Skip unreadable rows instead of stopping at the first."""
    keep_unanswered: bool = False
    """Keep rows whose answer is empty, as the InBedder authors do: the model learns to end at once. False treats them as
    unreadable."""
    held_out: NonNegativeInt = 0
    """Number of sampled rows kept out of training; their loss is logged every ``training.eval_steps`` steps."""
    seed: Seed | None = None
    """Seed of sampling from the sources; None takes ``training.seed``. Runs with different training seeds that share it train
    on the same rows."""
    cache: UserPath | None = "~/.cache/inbedder/examples"
    """Folder of cached examples, keyed by what produced them; None caches nothing."""


@dataclass(frozen=True)
class AnsweringSchedule(Schedule):
    """Training settings of answering; ``batch_size`` counts the rows of all devices."""

    output: UserPath = "runs/answering"
    warmup: Share = 0.03
    micro_batch: PositiveInt | None = None
    """Rows per device and forward pass; None takes as many as fit into memory. It affects speed and memory, and the result only
    with ``token_mean: micro-batch``."""
    token_mean: Literal["step", "micro-batch"] = "step"
    """Mean of the loss over answer tokens: over all tokens of a "step", or, as the InBedder authors' step, the mean of the means
    of its micro-batches, in which a token counts more if the answers beside it are short."""
    group_by_length: bool = True
    """Whether a batch has rows of similar length, which need little padding; false draws rows at random, as the InBedder authors
    do."""
    group: PositiveInt = 1
    """Maximum number of neighbouring rows with the same text, or the same question, as hard negatives; 1 disables grouping."""
    group_by: Literal["either", "text"] = "either"
    """What the rows of a group share: "either" draws text or question for each row, "text" is the text only. Adapters of the
    question read a text once per batch, so more rows per text make a step faster."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: slower, with less memory."""
    fsdp: bool = False
    """Shard weights, gradients and optimizer over the processes (GPUs); ``fsdp.yaml`` is the equivalent for accelerate."""
    dropout: DropoutRate | None = None
    """Dropout of the model's layers; None keeps the model's own."""
    freeze: str | None = None
    """Regular expression, searched in parameter names, of the parameters to freeze, such as embeddings."""
    attention: str | None = None
    """transformers' attn_implementation; "eager" trains faster than "sdpa" on a CPU with short texts."""
    eval_steps: PositiveInt = 500
    """Steps between evaluations of the held-out rows."""


@dataclass(frozen=True)
class AnsweringLora(Lora):
    """Low-rank adapters (peft)."""

    tokens: Literal["all", "question"] = "all"
    """Tokens that the adapters apply to. "question", for causal LMs and templates with the text first: the base reads the text,
    so that its keys and values serve every adapter; the question's and the answer's tokens read them with the adapters on."""
    base_dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of the frozen weights under the adapters. "bfloat16" halves their memory, and a run in bfloat16 autocast need not
    cast them in every pass."""


@dataclass(frozen=True)
class ResultOptions(Section):
    """Options of ``InBedder`` that the result's ``inbedder.json`` sets, in addition to those that follow from the training."""

    beside: str | None = None
    """The second model, whose vectors are appended."""
    base_encoder: str | None = None
    """The embedding model that encodes texts without an instruction."""
    max_new_tokens: PositiveInt | None = None
    """Maximum number of tokens of a generated answer; soft-gen takes ``objective.soft_tokens``."""
    normalize: bool | None = None
    """Whether vectors have length 1; None says so for late interaction only."""


@dataclass(frozen=True)
class Languages(Section):
    """The directions in which languages differ, which late interaction takes out of the text's own vector."""

    path: str
    """File in ``data.folder`` with parallel texts: columns input, language and corpus."""
    directions: PositiveInt = 24
    """Number of directions; at most the number of languages, less one for each corpus."""


@dataclass(frozen=True)
class AnsweringRecipe(Section):
    """Recipe of a run that trains a language model to answer."""

    model: str
    """Hub id, folder, or all-MiniLM-L6-v2 for the bundled base."""
    data: AnsweringData
    """Training data."""
    training: AnsweringSchedule = field(default_factory=AnsweringSchedule)
    """Training settings."""
    lora: AnsweringLora | None = None
    """Adapters; None trains all weights."""
    quantization: Literal["int8", "nf4"] | None = None
    """Quantization of the frozen weights under the adapters (QLoRA): "int8" or "nf4"."""
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    """Objectives and their weights."""
    template: str | None = None
    """Prompt template, as in ``InBedder``."""
    max_length: PositiveInt = 512
    """Maximum prompt length in tokens, answer included."""
    mask_length: int | str = 3
    """Masked LMs: number of masks for the answer; "answer" takes as many as the answer has tokens, as in the paper."""
    late_interaction: bool = False
    """Masked LMs of BERT's kind: encode text and question separately, and let only the masks attend to both. A text is then
    encoded once for all of its questions (``inbedder/backbones/late_interaction.py``)."""
    languages: Languages | None = None
    """With late_interaction and a multilingual base: parallel texts, by which the language is taken out of a text's own vector
    (``LanguageFilter``)."""
    answer_prefix: str = ""
    """String between prompt and answer, which are tokenized together: "" as in the authors' code, a space for models whose word
    tokens begin with a space (GPT-2, Llama 3, SmolLM). Encoder-decoders do not use it."""
    max_answer_tokens: PositiveInt = 40
    """Maximum answer length in tokens; a fixed number of masks also limits it."""
    options: ResultOptions = field(default_factory=ResultOptions)
    """How the result is used."""

    @property
    def has_question_adapter(self) -> bool:
        """Whether the adapters apply to the question's and the answer's tokens only."""
        return self.lora is not None and self.lora.tokens == "question"


def parse_recipe(values: Mapping[str, Any]) -> AnsweringRecipe:
    """Validate nested tables and build a recipe.

    Args:
        values: Content of the YAML file.

    Returns:
        The recipe.

    Raises:
        RecipeError: If a setting is unknown, missing, out of range, or contradicts another.

    Example:
        >>> parse_recipe({"model": "facebook/opt-1.3b", "data": {"sources": ["qa.jsonl"]}}).max_length
        512
    """
    recipe = validate_recipe(AnsweringRecipe, values)
    if any(bool(source.path) == bool(source.hub) for source in recipe.data.sources):
        raise RecipeError("Each of data.sources needs either a path or a hub id.")
    if recipe.mask_length != "answer" and not (isinstance(recipe.mask_length, int) and recipe.mask_length >= 1):
        raise RecipeError(f"mask_length must be at least 1, or answer; not {recipe.mask_length!r}.")
    _check_late_interaction(recipe)
    _check_text_states(recipe)
    _check_objectives(recipe)
    if recipe.quantization and recipe.lora is None:
        raise RecipeError("Quantized weights cannot be trained: add a lora section to the recipe (QLoRA).")
    if recipe.training.micro_batch is not None and recipe.training.batch_size % recipe.training.micro_batch:
        raise RecipeError("training.batch_size must be a multiple of training.micro_batch.")
    if recipe.training.token_mean == "micro-batch" and recipe.training.micro_batch is None:
        raise RecipeError("training.token_mean=micro-batch makes the result depend on training.micro_batch: set it to a number.")
    return recipe


def _check_objectives(recipe: AnsweringRecipe) -> None:
    """Reject recipes without an objective, and settings or sources that do not fit the objectives."""
    objectives = make_objectives(recipe.objective)
    if not any(objective.is_active for objective in objectives):
        raise RecipeError("No objective has a weight: set objective.token_weight or objective.reencode_weight above 0.")
    trains_vector = any(objective.is_active for objective in objectives if isinstance(objective, VectorObjective))
    if recipe.objective.pooling == "soft-gen" and not trains_vector:
        raise RecipeError("objective.pooling=soft-gen trains a vector: set objective.reencode_weight or objective.cosine_weight.")
    if recipe.objective.pooling == "soft-gen" and recipe.options.max_new_tokens is not None:
        raise RecipeError("soft-gen reads objective.soft_tokens tokens: remove options.max_new_tokens.")
    if recipe.data.keep_unanswered and trains_vector:
        raise RecipeError(
            "data.keep_unanswered keeps rows whose vector has no answer to learn: set it to false, or "
            "objective.reencode_weight and objective.cosine_weight to 0."
        )
    for objective in objectives:
        objective.check_sources(recipe.data.sources)


def _check_late_interaction(recipe: AnsweringRecipe) -> None:
    if not recipe.late_interaction:
        if recipe.languages is not None:
            raise RecipeError("languages changes the text's own vector of late_interaction: set late_interaction to true.")
        return
    if recipe.mask_length == "answer" or recipe.training.attention:
        raise RecipeError(
            "late_interaction needs a fixed mask_length and has its own attention: set mask_length to a number, and remove "
            "training.attention."
        )
    if recipe.lora is None:
        raise RecipeError("late_interaction trains adapters, since the base reads the texts: add a lora section.")
    if not get_template(recipe.template).text_first:
        raise RecipeError("late_interaction needs a template with {input} before {instruction}.")


def _check_text_states(recipe: AnsweringRecipe) -> None:
    """Reject settings with which soft tokens or adapters of the question cannot read a prompt's keys and values."""
    if recipe.has_question_adapter:
        setting = "lora.tokens=question"
    elif recipe.objective.pooling == "soft-gen":
        setting = "objective.pooling=soft-gen"
    else:
        return
    if recipe.training.gradient_checkpointing:
        raise RecipeError(
            f"{setting} reads the keys and values of each prompt, and recomputed layers keep none: set "
            "training.gradient_checkpointing to false."
        )
    if recipe.has_question_adapter and not get_template(recipe.template).text_first:
        raise RecipeError("lora.tokens=question needs a template with {input} before {instruction}.")
    if recipe.lora is not None and recipe.has_question_adapter and recipe.lora.bias != "none":
        raise RecipeError("lora.tokens=question leaves the text to the base, whose biases lora.bias would train: set it to none.")
