"""Recipes of contrastive training: pairs, schedule, temperature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from inbedder.options import BASE_NAME
from inbedder_finetune.recipe import SHARED, Above0, Count, Lora, Schedule, Section, Whole, checked, with_sources


@dataclass(frozen=True)
class PairSource(Section):
    """One table of pairs."""

    path: str
    """File, relative to ``data.folder``."""
    format: Literal["medi", "qa", "nli"] = "medi"
    """"medi"; "qa": each row's question with its passage; "nli": a premise with what it entails, against what contradicts it."""
    query_instruction: str = ""
    """qa and nli: instruction of the questions or premises."""
    positive_instruction: str = ""
    """qa and nli: instruction of the passages or hypotheses."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Other names of query, pos, neg, task_id (medi), input, instruction (qa), premise, hypothesis, label (nli)."""
    negatives: Whole | None = None
    """Hard negatives per row: rows with fewer are refused, of more so many are drawn. None is 1, and 0 for qa."""
    cap: Count | None = None
    """At most so many rows, drawn with the recipe's seed."""
    task_cap: Count | None = None
    """At most so many rows of each task, drawn likewise (the paper's table 5)."""
    keep: Mapping[str, str] = field(default_factory=dict)
    """Keep only rows whose fields hold these values, such as ``{split: train}``."""
    drop_flags: tuple[str, ...] = ()
    """Leave out rows whose ``flags`` hold one of these."""
    max_characters: Count | None = None
    """Leave out rows with a longer query or positive."""
    licence: str | None = None
    """Licence of the data, for the card."""

    @property
    def wanted(self) -> int:
        """How many negatives each row has."""
        return (0 if self.format == "qa" else 1) if self.negatives is None else self.negatives


@dataclass(frozen=True)
class PairData(Section):
    """What is learned from."""

    sources: tuple[PairSource, ...]
    """The files."""
    folder: str = "."
    """Where they lie."""
    skip_bad: bool = False
    """Skip rows that cannot be used instead of stopping at the first."""
    held_out: Whole = 0
    """So many drawn rows are not learned but give the loss of every ``training.eval_steps`` steps."""


@dataclass(frozen=True)
class ContrastiveSchedule(Schedule):
    """The schedule of contrastive training, the paper's (appendix A); a batch holds at most ``batch_size`` rows, of one task."""

    output: str = "runs/contrastive"
    batch_size: Annotated[int, Field(ge=2)] = 64
    """Rows per step, at most; a row's negatives are the others of its batch."""
    micro_batch: Count | None = None
    """Rows that are held at once (GradCache); None holds all of a batch, which is faster where it fits."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: slower, with less memory."""
    eval_steps: Count = 500
    """Steps between losses of the held-out rows."""


@dataclass(frozen=True)
class Curriculum(Section):
    """Data-CUBE: like tasks follow one another, and a task's rows go from easy to difficult (``curriculum``)."""

    tasks: bool = True
    """Order the tasks by a tour; false draws their order."""
    instances: bool = True
    """Order the rows of a task by their margin; false draws their order."""
    model: str = BASE_NAME
    """What measures tasks and margins, a model that has learned before: hub id, folder, or the bundled base."""
    sample: Count = 100
    """Queries that make a task's vector, at most."""
    tour: Literal["2-opt", "annealing"] = "2-opt"
    """How the order of tasks is found: 2-opt, or the paper's annealing, which comes less near in more time."""
    steps: Whole = 2_000_000
    """Proposed swaps of the annealing."""
    threshold: float | None = None
    """Rows whose margin is below it (``direction`` text), or not below it (equation), are not learned and stay as negatives of
    their batch (equation 9); None learns all."""
    direction: Literal["text", "equation"] = "text"
    """Which way equation 9 is read: "text" masks the difficult rows, "equation" the easy ones."""


@dataclass(frozen=True)
class ContrastiveRecipe(Section):
    """A whole run."""

    data: PairData
    """What is learned from."""
    model: str = BASE_NAME
    """A BERT-like or T5 encoder or a sentence-transformers model that pools by the mean: hub id, folder, or the bundled base."""
    training: ContrastiveSchedule = field(default_factory=ContrastiveSchedule)
    """How long and how fast."""
    lora: Lora | None = None
    """Adapters, merged into the result; None trains all weights."""
    curriculum: Curriculum | None = None
    """The order of batches; None draws it."""
    temperature: Above0 = 0.01
    """t of the loss."""
    max_length: Count = 256
    """Longest input in tokens, instruction included; texts are cut at their end."""


def parse_recipe(values: Mapping[str, Any]) -> ContrastiveRecipe:
    """Build a recipe of nested tables.

    Args:
        values: What the YAML file holds.

    Returns:
        The recipe.

    Raises:
        RecipeError: When a setting is unknown, missing or out of range.
    """
    ready = {key: value for key, value in values.items() if key not in SHARED}
    ready["data"] = with_sources(ready.get("data"), values)
    return checked(ContrastiveRecipe, ready)
