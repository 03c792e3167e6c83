"""Disk cache of tokenized examples.

The name of a cache file is a hash of the rows, the template, the lengths, the tokenizer, and the source of the code that renders
and tokenizes. Files are written atomically, so an interrupted run leaves none. Examples are memory-mapped, so a data set may be
larger than memory.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import inbedder.prompting.chat_templates
import inbedder.prompting.templates
import inbedder.prompting.tokenization
import inbedder_finetune.answering.examples
from inbedder.io.files import atomic_write
from inbedder.runtime.user_paths import expand_path
from inbedder_finetune.answering.examples import AnswerFormat
from inbedder_finetune.answering.trainable_families import make_examples
from inbedder_finetune.answering.training_row import Row

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

CHUNK_ROWS = 2000
"""Number of rows that are tokenized and written at once."""
HASHED_MODULES = (
    inbedder_finetune.answering.examples,
    inbedder.prompting.chat_templates,
    inbedder.prompting.templates,
    inbedder.prompting.tokenization,
)


def compute_cache_key(kind: str, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat) -> str:
    """Hash everything that the examples depend on.

    Args:
        kind: Family of the model.
        tokenizer: The model's tokenizer.
        rows: Training rows.
        answer_format: Template and lengths.

    Returns:
        A hash of 32 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([row.text, row.instruction, row.answer]).encode())
    backend = tokenizer.backend_tokenizer.to_str() if hasattr(tokenizer, "backend_tokenizer") else repr(tokenizer)
    lengths = [answer_format.max_length, answer_format.mask_length, answer_format.max_answer_tokens, answer_format.answer_prefix]
    code = [inspect.getsource(module) for module in HASHED_MODULES]
    template = answer_format.template
    chat = None if template.system is None else [template.system, tokenizer.chat_template]
    content = [kind, template.pattern, template.without_input, chat, lengths, backend, tokenizer.all_special_tokens, code]
    digest.update(json.dumps(content).encode())
    return digest.hexdigest()[:32]


def load_examples(
    kind: str, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat, cache: str | None
) -> Dataset:
    """Load tokenized rows from the cache, tokenizing and caching them first when they are missing.

    Args:
        kind: Family of the model.
        tokenizer: The model's tokenizer.
        rows: Training rows.
        answer_format: Template and lengths.
        cache: Folder of the cache; None caches nothing.

    Returns:
        Numpy examples: input_ids, labels, is_cut (whether the text was truncated), length, and the ids of text and question.
    """
    from datasets import Dataset

    if cache is None:
        examples = [example for chunk in _tokenize_chunks(kind, tokenizer, rows, answer_format) for example in chunk]
        return Dataset.from_list(examples).with_format("numpy")
    folder = expand_path(cache)
    path = folder / f"{compute_cache_key(kind, tokenizer, rows, answer_format)}.arrow"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, _tokenize_chunks(kind, tokenizer, rows, answer_format))
    return Dataset.from_file(str(path)).with_format("numpy")


def _tokenize_chunks(
    kind: str, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat
) -> Iterator[list[dict[str, Any]]]:
    texts: dict[str, int] = {}
    questions: dict[str, int] = {}
    for start in range(0, len(rows), CHUNK_ROWS):
        chunk_rows = rows[start : start + CHUNK_ROWS]
        chunk = make_examples(kind, tokenizer, chunk_rows, answer_format)
        for example, row in zip(chunk, chunk_rows, strict=True):
            example["length"] = len(example["input_ids"])
            example["text"] = texts.setdefault(row.text, len(texts))
            example["question"] = questions.setdefault(row.instruction, len(questions))
        yield chunk


def _write(path: Path, chunks: Iterator[list[dict[str, Any]]]) -> None:
    import pyarrow as pa

    ids, number = pa.list_(pa.int32()), pa.int32()
    kinds = {"input_ids": ids, "labels": ids, "is_cut": pa.bool_()}
    first = next(chunks)
    kinds |= dict.fromkeys(sorted(first[0].keys() - kinds.keys()), number)
    schema = pa.schema(kinds)
    with atomic_write(path) as temporary, pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for chunk in chain([first], chunks):
            columns = {
                name: [example[name].tolist() if name in ("input_ids", "labels") else example[name] for example in chunk]
                for name in kinds
            }
            writer.write_batch(pa.record_batch(columns, schema=schema))
