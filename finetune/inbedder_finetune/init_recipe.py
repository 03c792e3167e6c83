"""A first recipe for a table of one's own, to be read and changed."""

from __future__ import annotations

import json
from pathlib import Path

from inbedder.errors import InputError, RecipeError, shown_names
from inbedder.io.columns import GUESSED_FROM, columns_of
from inbedder.io.files import atomic_write
from inbedder.io.formats import BadRow
from inbedder.io.tables import stream_rows
from inbedder_finetune.column_names import ALSO_CALLED, column_of

RECIPE = """\
# Teaches {model} to answer the questions of {table} in a few content words.
# Its columns: {text} holds the texts, {question} the questions, {answer} the answers.
#
#   inbedder finetune {recipe} --dry-run                      # what would be learned: prompts, answers, a table of the data
#   inbedder finetune {recipe}
#   inbedder finetune {recipe} --set training.resume=true     # goes on after a stop
#   inbedder embed NEW.csv -i "A QUESTION" --model {output}
#
# docs/recipes.md lists every setting; finetune/recipes/ holds larger examples.
model: {model}            # or any causal, masked or encoder-decoder language model: a hub id or a folder
max_length: 224        # longest prompt in tokens; longer texts are cut at their end

data:
  folder: {folder}
  held_out: {held_out}          # rows that are not learned; their loss says whether learning helps beyond the learned rows
  sources:
    - path: {path}
      # fields: {{input: {text_name}, instruction: {question_name}, output: {answer_name}}}    # where other columns are meant
      # cap: 1000                    # at most so many rows, drawn
      # max_characters: 1000         # leaves longer texts out
      # licence: ...                 # of the data, for the model's card

objective:
  reencode_weight: 1.0  # also draws the vector towards that of the answer; 0 learns the answer's tokens alone

training:
  output: {output}
  epochs: 3
  batch_size: {batch_size}
  learning_rate: 1.0e-4  # peak rate of all weights
  dropout: 0.0
  eval_steps: {eval_steps}
"""


def write_recipe(table: Path, recipe: Path) -> None:
    """Write a small commented recipe for a table of texts, questions and answers.

    Args:
        table: A table as ``inbedder.io.tables`` reads it.
        recipe: Where to write; must not be there yet.

    Raises:
        RecipeError: When the recipe is there already, or the table lacks a text, a question or an answer.
    """
    if recipe.exists():
        raise RecipeError(f"{recipe} is there already. Name another: inbedder finetune OTHER.yaml --init {table}")
    try:
        rows = [row for _, row in stream_rows(str(table)) if not isinstance(row, BadRow)]
    except InputError as error:
        raise RecipeError(str(error)) from error
    columns = columns_of(rows[:GUESSED_FROM])
    names = {key: column_of(key, {}, columns) for key in ALSO_CALLED}
    missing = [key for key, name in names.items() if name not in columns]
    if missing:
        needed = "; ".join(f"{key} ({', '.join(ALSO_CALLED[key])})" for key in missing)
        raise RecipeError(
            f"{table} has no column for {needed}. Its columns are: {shown_names(columns)}. Rename them: each row needs a text, a "
            "question about it and the answer in a few words."
        )
    batch_size = 32 if len(rows) >= 320 else 8
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
                eval_steps=max(1, 3 * len(rows) // batch_size // 5),
                **dict(zip(("text", "question", "answer"), names.values(), strict=True)),
                **dict(zip(("text_name", "question_name", "answer_name"), map(json.dumps, names.values()), strict=True)),
            ),
            encoding="utf-8",
        )
