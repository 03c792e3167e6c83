"""Preview of the training data of a run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

from inbedder_finetune.answering.examples import IGNORE_INDEX, AnswerFormat
from inbedder_finetune.answering.trainable_families import make_examples
from inbedder_finetune.answering.training_row import Row

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def describe_rows(
    kind: str, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat, rows_per_source: int = 2
) -> str:
    """Describe training rows: the first rows of each source as the model reads them, and a table of the sources.

    Args:
        kind: Family of the model.
        tokenizer: The model's tokenizer.
        rows: All rows.
        answer_format: Template and lengths.
        rows_per_source: Number of rows shown per source.

    Returns:
        Text for a terminal.
    """
    lines, table = [], [("source", "rows", "answer words", "truncated in the first 1,000")]
    for source in dict.fromkeys(row.source for row in rows):
        source_rows = [row for row in rows if row.source == source]
        sample = make_examples(kind, tokenizer, source_rows[:1000], answer_format)
        lines.append(f"== {source}")
        for row, example in zip(source_rows[:rows_per_source], sample, strict=False):
            loss_ids = [int(label) for label in example["labels"] if label != IGNORE_INDEX]
            lines += [
                f"prompt: {tokenizer.decode(example['input_ids'])!r}",
                f"answer: {row.answer!r}",
                f"loss on: {loss_ids} {tokenizer.convert_ids_to_tokens(loss_ids)}",
            ]
        words = mean(len(row.answer.split()) for row in source_rows)
        table.append((source, f"{len(source_rows):,}", f"{words:.1f}", f"{mean(example['is_cut'] for example in sample):.1%}"))
    widths = [max(len(row[i]) for row in table) for i in range(4)]
    lines += ["", *("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table)]
    return "\n".join(lines)
