"""A commented first recipe for a user's table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from inbedder.errors import InputError, RecipeError, format_names
from inbedder.io.columns import MAX_INSPECTED_ROWS, list_columns
from inbedder.io.files import atomic_write
from inbedder.io.formats import BadRow
from inbedder.io.tables import stream_rows
from inbedder_finetune.column_names import COLUMN_ALIASES, find_column, get_first_answer
from inbedder_finetune.recipe import read_settings

RECIPE = """# Trains {model} to answer the questions of {table} in a few content words.
# Columns: {text} holds the texts, {question} the questions, {answer} the answers.
#
#   inbedder finetune {recipe} --dry-run                      # show prompts, answers and a table of the data; train nothing
#   inbedder finetune {recipe}
#   inbedder embed NEW.csv -i "A QUESTION" --model {output}
#
# To predict a few exact labels, training is not the best tool: `inbedder classify` needs none, and with hundreds of labelled rows
# a logistic regression on the vectors is better (docs/how-to/classify.md). Training makes a model forget questions that its rows
# do not ask; the recipe adds rows of other questions, to which you may add those that you need.
#
# docs/recipes.md lists every setting; finetune/recipes/ holds larger examples.
# The adapters of {model} are trained further. For another causal, masked or encoder-decoder language model, name it and remove
# template, late_interaction and lora.
{model_settings}max_length: 224        # maximum prompt length in tokens; longer texts are truncated at their end
{label_settings}
data:
  folder: {folder}
  strip_stopwords: {strips}    # whether answers are learned without words such as "the" and "of"
  held_out: {held_out}          # rows kept out of training; their loss shows whether the model generalizes
  sources:
    - path: {path}
      # fields: {{input: {text_name}, instruction: {question_name}, output: {answer_name}}}    # to use other columns
      # cap: 1000                    # maximum number of rows, sampled at random
      # max_characters: 1000         # skip longer texts
      # licence: ...                 # of the data, for the model card
    # other questions about shipped texts, so that the model keeps answering them
{rehearsal}

objective:
  reencode_weight: 1.0  # also trains the vector towards that of the answer; 0 trains on the answer's tokens only
  cosine_weight: 1.0

training:
  output: {output}
  epochs: 3
  batch_size: {batch_size}
  learning_rate: 3.0e-4  # peak learning rate
  dropout: 0.0
  eval_steps: {eval_steps}
"""

LABEL_SETTINGS = "mask_length: {mask_length}         # tokens of an answer: the answers are {count} labels, learned whole\n"
REHEARSAL = "    - {{path: {file}, cap: {cap}, questions_per_text: 3}}"
REHEARSED_FILES, REHEARSED_SHARE = ("opinions.yaml", "requests.yaml", "scenes.yaml", "forms.yaml"), 1.0
"""Shipped files of composed texts, and their rows per row of the table."""
MAX_LABELS, MIN_ROWS_PER_LABEL = 100, 5
"""Maximum number of labels, and their minimum mean number of rows."""
TOKENS_PER_WORD, MAX_MASK_LENGTH = 2, 12


def write_recipe(table: Path, recipe: Path) -> None:
    r"""Write a short commented recipe for a table of texts, questions and answers.

    Args:
        table: A table that ``inbedder.io.tables`` can read.
        recipe: Path of the new recipe; it must not exist.

    Raises:
        RecipeError: If the recipe exists, or the table lacks a column of texts, questions or answers.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "table.csv").write_text("text,question,answer\nThe tea was cold.,What was cold?,tea\n")
        >>> write_recipe(folder / "table.csv", folder / "first.yaml")
        >>> (folder / "first.yaml").read_text().splitlines()[0]
        '# Trains mini to answer the questions of table.csv in a few content words.'
    """
    if recipe.exists():
        raise RecipeError(f"{recipe} already exists. Choose another name: inbedder finetune OTHER.yaml --init {table}")
    try:
        rows = [row for _, row in stream_rows(str(table)) if not isinstance(row, BadRow)]
    except InputError as error:
        raise RecipeError(str(error)) from error
    columns = list_columns(rows[:MAX_INSPECTED_ROWS])
    names = {key: find_column(key, {}, columns) for key in COLUMN_ALIASES}
    missing = [key for key, name in names.items() if name not in columns]
    if missing:
        aliases = "; ".join(f"{key} ({', '.join(COLUMN_ALIASES[key])})" for key in missing)
        raise RecipeError(
            f"{table} has no column for {aliases}. Its columns are: {format_names(columns)}. Rename the columns: "
            "each row needs a text, a question about it and a short answer."
        )
    batch_size = 32 if len(rows) >= 320 else 8
    cap = max(1, round(REHEARSED_SHARE * len(rows) / len(REHEARSED_FILES)))
    row_count = len(rows) + cap * len(REHEARSED_FILES)
    labels = _find_labels(rows, names["output"])
    with atomic_write(recipe) as temporary:
        temporary.write_text(
            RECIPE.format(
                model="mini",
                table=table.name,
                recipe=recipe,
                folder=json.dumps(table.parent.as_posix()),
                path=json.dumps(table.name),
                output=f"runs/{recipe.stem}",
                held_out=min(200, len(rows) // 10),
                batch_size=batch_size,
                eval_steps=max(1, 3 * row_count // batch_size // 5),
                model_settings=_write_model_settings("mini"),
                label_settings=_set_labels(labels) if labels else "",
                strips=json.dumps(not labels),
                rehearsal="\n".join(REHEARSAL.format(file=file, cap=cap) for file in REHEARSED_FILES),
                **dict(zip(("text", "question", "answer"), names.values(), strict=True)),
                **dict(zip(("text_name", "question_name", "answer_name"), map(json.dumps, names.values()), strict=True)),
            ),
            encoding="utf-8",
        )


def _write_model_settings(model: str) -> str:
    """Write the settings with which a bundled model was made, and that training starts from its adapters."""
    settings = read_settings(model)
    values = {key: settings[key] for key in ("model", "template", "late_interaction")}
    values["lora"] = {"init_adapter": model, **settings["lora"]}
    return str(yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=200))


def _find_labels(rows: Sequence[Mapping[str, Any]], column: str) -> set[str]:
    """Find the labels that a table has as answers; none if its answers are too many to be labels."""
    answers = [str(get_first_answer(row.get(column))) for row in rows]
    labels = {answer for answer in answers if answer.strip()}
    return labels if len(labels) <= min(MAX_LABELS, len(answers) // MIN_ROWS_PER_LABEL) else set()


def _set_labels(labels: set[str]) -> str:
    """Write the setting that labels need."""
    longest = max(len(label.split()) for label in labels)
    return LABEL_SETTINGS.format(mask_length=min(MAX_MASK_LENGTH, max(3, TOKENS_PER_WORD * longest)), count=len(labels))
