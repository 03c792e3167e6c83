"""What a run would learn, shown before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

from inbedder_finetune.answering.examples import IGNORED, AnswerFormat
from inbedder_finetune.answering.trainable_families import make_examples
from inbedder_finetune.answering.training_row import Row

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def dry_run(
    kind: str, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat, shown: int = 2
) -> str:
    """Describe what would be learned: the first rows of each source as the model reads them, and a table of the sources.

    Args:
        kind: Family of the model.
        tokenizer: Its tokenizer.
        rows: All rows.
        answer_format: Template and lengths.
        shown: Rows per source.

    Returns:
        Text for a terminal.
    """
    lines, table = [], [("source", "rows", "answer words", "cut at the first 1,000")]
    for source in dict.fromkeys(row.source for row in rows):
        of_source = [row for row in rows if row.source == source]
        sample = make_examples(kind, tokenizer, of_source[:1000], answer_format)
        lines.append(f"== {source}")
        for row, example in zip(of_source[:shown], sample, strict=False):
            carrying = [int(label) for label in example["labels"] if label != IGNORED]
            lines += [
                f"prompt: {tokenizer.decode(example['input_ids'])!r}",
                f"answer: {row.answer!r}",
                f"loss on: {carrying} {tokenizer.convert_ids_to_tokens(carrying)}",
            ]
        words = mean(len(row.answer.split()) for row in of_source)
        table.append((source, f"{len(of_source):,}", f"{words:.1f}", f"{mean(one['cut'] for one in sample):.1%}"))
    widths = [max(len(row[i]) for row in table) for i in range(4)]
    lines += ["", *("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table)]
    return "\n".join(lines)
