"""Tokenized examples on disk, found again by everything that made them.

The name of a cache file is a hash of the data section with the contents of its files, the template, the lengths, the
tokenizer, and the code that reads, strips, renders and tokenizes: whatever changes, another file is made. Files are written
aside and renamed, so an interrupted run leaves none; examples are memory-mapped, so a set may be larger than memory.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import finetune.data
import finetune.examples
import finetune.sources
import inbedder.prompting
import inbedder.tokenization
from finetune.data import Row
from finetune.examples import make_examples
from finetune.recipe import Recipe
from inbedder.errors import MissingExtraError
from inbedder.files import atomic_write
from inbedder.models.bundled import sha256_of
from inbedder.prompting import get_template

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

CHUNK = 2000
MAKERS = (finetune.data, finetune.examples, finetune.sources, inbedder.prompting, inbedder.tokenization)


def examples_key(kind: str, tokenizer: PreTrainedTokenizerBase, recipe: Recipe, part: str) -> str:
    """What the examples depend on.

    Args:
        kind: Family of the model.
        tokenizer: Its tokenizer.
        recipe: Data, template, lengths and seed.
        part: "learned" or "held out".

    Returns:
        A hash of 32 hexadecimal digits.
    """
    folder = Path(recipe.data.folder)
    names = {name for source in recipe.data.sources for name in (source.path, source.beside) if name}
    files = {name: sha256_of(folder / name) for name in sorted(names)}
    data = {key: value for key, value in asdict(recipe.data).items() if key not in ("folder", "cache")}
    backend = tokenizer.backend_tokenizer.to_str() if hasattr(tokenizer, "backend_tokenizer") else repr(tokenizer)
    lengths = [recipe.max_length, recipe.mask_length, recipe.max_answer_tokens, recipe.training.seed]
    code = [inspect.getsource(module) for module in MAKERS]
    words = finetune.data.STOPWORDS_FILE.read_text(encoding="utf-8")
    content = [
        kind,
        data,
        files,
        get_template(recipe.template).pattern,
        lengths,
        backend,
        tokenizer.all_special_tokens,
        code,
        words,
        part,
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:32]


def cached_examples(
    kind: str, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], recipe: Recipe, part: str = "learned"
) -> tuple[Dataset, list[str]]:
    """Tokenize rows chunk by chunk into a file, or take the file that the same recipe made before.

    Args:
        kind: Family of the model.
        tokenizer: Its tokenizer.
        rows: What is learned.
        recipe: Template, lengths, and data.cache.
        part: Which part of the recipe's rows these are.

    Returns:
        A data set of numpy examples (input_ids, labels, cut, length, and the numbers of answer, text and question), and the
        distinct answers, lower case, in the order of their numbers.
    """
    try:
        from datasets import Dataset
    except ImportError as error:
        raise MissingExtraError("datasets", "finetune") from error
    numbers: dict[str, int] = {}
    answers = [numbers.setdefault(row.answer.lower(), len(numbers)) for row in rows]
    if recipe.data.cache is None:
        examples = [one for chunk in _chunks(kind, tokenizer, rows, recipe, answers) for one in chunk]
        return Dataset.from_list(examples).with_format("numpy"), list(numbers)
    folder = Path(recipe.data.cache).expanduser()
    path = folder / f"{examples_key(kind, tokenizer, recipe, part)}.arrow"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, _chunks(kind, tokenizer, rows, recipe, answers))
    return Dataset.from_file(str(path)).with_format("numpy"), list(numbers)


def _chunks(
    kind: str, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], recipe: Recipe, answers: Sequence[int]
) -> Iterator[list[dict[str, Any]]]:
    texts: dict[str, int] = {}
    questions: dict[str, int] = {}
    for start in range(0, len(rows), CHUNK):
        some = rows[start : start + CHUNK]
        chunk = make_examples(kind, tokenizer, some, recipe)
        for example, row, answer in zip(chunk, some, answers[start:], strict=False):
            example["length"] = len(example["input_ids"])
            example["answer"] = answer
            example["text"] = texts.setdefault(row.text, len(texts))
            example["question"] = questions.setdefault(row.instruction, len(questions))
        yield chunk


def _write(path: Path, chunks: Iterator[list[dict[str, Any]]]) -> None:
    import pyarrow as pa

    ids, number = pa.list_(pa.int32()), pa.int32()
    kinds = {"input_ids": ids, "labels": ids, "cut": pa.bool_()}
    kinds |= dict.fromkeys(("length", "answer", "text", "question"), number)
    schema = pa.schema(kinds)
    with atomic_write(path) as temporary, pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for chunk in chunks:
            columns = {
                name: [one[name].tolist() if name in ("input_ids", "labels") else one[name] for one in chunk] for name in kinds
            }
            writer.write_batch(pa.record_batch(columns, schema=schema))
