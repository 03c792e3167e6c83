"""Question-answer rows: read, filtered, sampled, answers stripped of stopwords.

Follows section 4.4 of the InBedder paper: the union of question-answering sets, the paragraph as input, the question as
instruction, and answers without stopwords. Negations and quantities stay (see stopwords_en.txt), and an answer that
holds nothing else is kept as it is.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from finetune.recipe import Data, Source
from inbedder.errors import MissingExtraError, RecipeError

STOPWORDS_FILE = Path(__file__).resolve().parent / "stopwords_en.txt"
PUNCTUATION = set(".,;:!?\"'`()[]{}-–—…") | {"``", "''", "--", "..."}


@dataclass(frozen=True)
class Row:
    """One question about one text, with its answer."""

    text: str
    """The paragraph."""
    instruction: str
    """The question."""
    answer: str
    """The answer, stripped when the recipe says so."""
    source: str
    """Name of the file."""


@cache
def stopwords() -> frozenset[str]:
    """The words of ``stopwords_en.txt``, lower case."""
    lines = STOPWORDS_FILE.read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


def strip_stopwords(answer: str) -> str:
    """Leave out stopwords and punctuation marks, by NLTK's NLTKWordTokenizer (which needs no download).

    Args:
        answer: An answer as its data set has it.

    Returns:
        The remaining words joined by spaces, or the answer itself when no word remains.

    Raises:
        MissingExtraError: When NLTK is not installed.
    """
    try:
        from nltk.tokenize import NLTKWordTokenizer
    except ImportError as error:
        raise MissingExtraError("nltk", "finetune") from error
    words = NLTKWordTokenizer().tokenize(answer)
    kept = [word for word in words if word.lower() not in stopwords() and word not in PUNCTUATION]
    return " ".join(kept) if kept else " ".join(answer.split())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            yield from enumerate(file, start=1)
    except FileNotFoundError as error:
        raise RecipeError(f"No file {path}. Set data.folder to where the recipe's sources lie.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"Cannot read {path}: {error}") from error


def read_rows(path: Path, answer_from: str = "output", *, skip_bad: bool = False) -> list[Row]:
    """Read a file of rows.

    Args:
        path: A jsonl or jsonl.gz file with the string fields input, instruction and output.
        answer_from: The field that holds the answer.
        skip_bad: Skip rows that lack a field or are not JSON.

    Returns:
        The rows, answers as they stand.

    Raises:
        RecipeError: Naming file and line of the first bad row.
    """
    rows = []
    for number, line in _lines(path):
        try:
            record = json.loads(line)
            parts = [record[key] for key in ("input", "instruction", answer_from)]
            if not all(isinstance(part, str) for part in parts) or not parts[2].strip():
                raise TypeError(f"input, instruction and {answer_from} must be text, and the answer not empty")
        except (ValueError, KeyError, TypeError) as error:
            if skip_bad:
                continue
            raise RecipeError(
                f"{path}, line {number}: not a question-answer row ({error!r}). "
                f"Each line is a JSON object with input, instruction and {answer_from}. Set data.skip_bad=true to skip such rows."
            ) from error
        rows.append(Row(parts[0], parts[1], parts[2], path.name))
    return rows


def _read_source(source: Source, data: Data, draw: random.Random) -> list[Row]:
    folder = Path(data.folder)
    limit = source.max_characters or data.max_characters
    rows = [
        row
        for row in read_rows(folder / source.path, source.answer_from, skip_bad=data.skip_bad)
        if not limit or len(row.text) <= limit
    ]
    if source.only:
        rows = [row for row in rows if row.instruction in source.only]
    if source.answers:
        rows = [replace(row, answer=source.answers[row.answer]) for row in rows if row.answer in source.answers]
    if source.cap is not None and len(rows) > source.cap:
        rows = draw.sample(rows, source.cap)
    if source.instructions:
        rows = [replace(row, instruction=draw.choice(source.instructions)) for row in rows]
    if source.beside:
        others = [row.text for row in read_rows(folder / source.beside, skip_bad=data.skip_bad)]
        others = [text for text in others if not limit or len(text) <= limit]
        pairs = [(row, draw.choice(others)) for row in rows]
        rows = [replace(row, text=" ".join(draw.sample([row.text, other], 2))) for row, other in pairs]
    return rows


def load_rows(data: Data, seed: int = 0) -> list[Row]:
    """Read, filter and sample all sources of a recipe.

    Args:
        data: The recipe's data section.
        seed: Seed of the caps and of drawn instructions.

    Returns:
        The rows, source after source; the trainer shuffles.

    Raises:
        RecipeError: When a file or a row cannot be read, or nothing is left.
    """
    draws = [random.Random(f"{seed} {number} {source.path}") for number, source in enumerate(data.sources)]
    rows = [row for source, draw in zip(data.sources, draws, strict=True) for row in _read_source(source, data, draw)]
    if not rows:
        raise RecipeError("No row is left: check data.sources, their answers, only and max_characters.")
    if data.strip_stopwords:
        rows = [replace(row, answer=strip_stopwords(row.answer)) for row in rows]
    return rows
