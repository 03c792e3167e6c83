"""Tokenized examples on disk, found again by everything that made them.

The name of a cache file is a hash of the rows themselves, the template, the lengths, the tokenizer, and the code that renders
and tokenizes: whatever changes, another file is made. Files are written
aside and renamed, so an interrupted run leaves none; examples are memory-mapped, so a set may be larger than memory.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import inbedder.prompting.templates
import inbedder.prompting.tokenization
import inbedder_finetune.answering.examples
from inbedder.errors import MissingExtraError
from inbedder.io.files import atomic_write
from inbedder_finetune.answering.examples import AnswerFormat
from inbedder_finetune.answering.trainable_families import make_examples
from inbedder_finetune.answering.training_row import Row

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

CHUNK = 2000
MAKERS = (inbedder_finetune.answering.examples, inbedder.prompting.templates, inbedder.prompting.tokenization)


def examples_key(kind: str, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat) -> str:
    """Hash what the examples depend on.

    Args:
        kind: Family of the model.
        tokenizer: Its tokenizer.
        rows: What is learned.
        answer_format: Template and lengths.

    Returns:
        A hash of 32 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([row.text, row.instruction, row.answer]).encode())
    backend = tokenizer.backend_tokenizer.to_str() if hasattr(tokenizer, "backend_tokenizer") else repr(tokenizer)
    lengths = [answer_format.max_length, answer_format.mask_length, answer_format.max_answer_tokens, answer_format.answer_prefix]
    code = [inspect.getsource(module) for module in MAKERS]
    template = answer_format.template
    content = [kind, template.pattern, template.without_input, lengths, backend, tokenizer.all_special_tokens, code]
    digest.update(json.dumps(content).encode())
    return digest.hexdigest()[:32]


def cached_examples(
    kind: str, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat, cache: str | None
) -> Dataset:
    """Tokenize rows chunk by chunk into a file, or take the file that was made of the same before.

    Args:
        kind: Family of the model.
        tokenizer: Its tokenizer.
        rows: What is learned.
        answer_format: Template and lengths.
        cache: Folder of the file; None writes none.

    Returns:
        Numpy examples: input_ids, labels, cut, length, and the numbers of text and question.
    """
    try:
        from datasets import Dataset
    except ImportError as error:
        raise MissingExtraError("datasets", "finetune") from error
    if cache is None:
        examples = [example for chunk in _chunks(kind, tokenizer, rows, answer_format) for example in chunk]
        return Dataset.from_list(examples).with_format("numpy")
    folder = Path(cache).expanduser()
    path = folder / f"{examples_key(kind, tokenizer, rows, answer_format)}.arrow"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, _chunks(kind, tokenizer, rows, answer_format))
    return Dataset.from_file(str(path)).with_format("numpy")


def _chunks(
    kind: str, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat
) -> Iterator[list[dict[str, Any]]]:
    texts: dict[str, int] = {}
    questions: dict[str, int] = {}
    for start in range(0, len(rows), CHUNK):
        chunk_rows = rows[start : start + CHUNK]
        chunk = make_examples(kind, tokenizer, chunk_rows, answer_format)
        for example, row in zip(chunk, chunk_rows, strict=True):
            example["length"] = len(example["input_ids"])
            example["text"] = texts.setdefault(row.text, len(texts))
            example["question"] = questions.setdefault(row.instruction, len(questions))
        yield chunk


def _write(path: Path, chunks: Iterator[list[dict[str, Any]]]) -> None:
    import pyarrow as pa

    ids, number = pa.list_(pa.int32()), pa.int32()
    kinds = {"input_ids": ids, "labels": ids, "cut": pa.bool_()}
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
