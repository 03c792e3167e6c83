"""Question-answer rows: reading, filtering, sampling, and stripping stopwords from answers.

Rows follow section 4.4 of the InBedder paper: a union of question-answering data sets, with the paragraph as input, the question
as instruction, and answers without stopwords. The list "ours" keeps negations and quantities and strips punctuation. NLTK's list,
as in the paper, strips negations and keeps clitics ("n't", "'s") and punctuation.
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from inbedder.errors import RecipeError
from inbedder.prompting.stopwords import StopwordList, load_stopwords
from inbedder_finetune.answering.answering_recipe import AnsweringData
from inbedder_finetune.answering.keywords import cache_salient_words
from inbedder_finetune.answering.training_row import Row
from inbedder_finetune.column_names import find_column, get_first_answer
from inbedder_finetune.questions import read_questions
from inbedder_finetune.sources import Record, Source, filter_records, read_hub_records, read_records
from inbedder_finetune.synthetic.compose import WRITTEN_FOLDER

logger = logging.getLogger(__name__)

KEYWORD_ENCODER = "all-MiniLM-L6-v2"
ReadFile = Callable[[Path, int], Sequence[tuple[int, Any]]]
"""A function that reads a file's records, given ``questions_per_text``."""
PUNCTUATION = set(".,;:!?\"'`()[]{}-–—…") | {"``", "''", "--", "..."}


def strip_stopwords(answer: str, stopword_list: StopwordList = "ours") -> str:
    """Strip stopwords from an answer, tokenized by NLTK's NLTKWordTokenizer, which needs no download.

    Args:
        answer: An answer of a data set.
        stopword_list: "ours" also strips punctuation; "nltk", as in the paper, keeps it.

    Returns:
        The remaining words joined by spaces; the answer itself when no word remains.

    Example:
        >>> strip_stopwords("It is not Anna's."), strip_stopwords("It is not Anna's.", "nltk")
        ('not Anna', "Anna 's .")
    """
    from nltk.tokenize import NLTKWordTokenizer

    words = NLTKWordTokenizer().tokenize(answer)
    marks = PUNCTUATION if stopword_list == "ours" else frozenset[str]()
    words = [word for word in words if word.lower() not in load_stopwords(stopword_list) and word not in marks]
    return " ".join(answer.split() if PUNCTUATION.issuperset(words) else words)


def get_source_name(source: Source) -> str:
    """Get the name of a source for messages, tables and cards."""
    return source.hub or source.path


def _read_file(path: Path, questions_per_text: int) -> list[tuple[int, Any]]:
    return list(read_records(path, questions_per_text))


def _read_records(source: Source, folder: Path, read_file: ReadFile) -> Any:
    if source.hub:
        return read_hub_records(source)
    shipped_path = WRITTEN_FOLDER / source.path
    path = shipped_path if shipped_path.exists() and not (folder / source.path).exists() else folder / source.path
    return read_file(path, source.questions_per_text)


def read_rows(
    source: Source,
    folder: Path | str = ".",
    *,
    skip_bad: bool = False,
    keep_unanswered: bool = False,
    read_file: ReadFile = _read_file,
) -> list[Row]:
    """Read the rows of a source that pass its filters.

    Args:
        source: File or hub id, columns and filters.
        folder: Folder of the files.
        skip_bad: Whether to skip rows that lack a column or cannot be parsed.
        keep_unanswered: Whether to keep rows whose answer is empty, which are bad rows otherwise.
        read_file: Reads a file; a cached function reads it once for several sources.

    Returns:
        The rows, with unstripped answers.

    Raises:
        RecipeError: If a row is bad; the message names the file and the row.
    """
    name, rows, num_bad = get_source_name(source), [], 0
    for number, record in filter_records(_read_records(source, Path(folder), read_file), name, source.keep, source.drop_flags):
        try:
            if not isinstance(record, Mapping):
                raise TypeError(record if isinstance(record, str) else "not an object")
            rows.append(_make_row(record, source, name, keep_unanswered))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            if skip_bad:
                num_bad += 1
                continue
            raise RecipeError(
                f"{name}, row {number}: not a question-answer row ({error!r}). Each row needs input, instruction and "
                f"{source.answer_column} (or context, question and answer), or the columns that `fields` names. "
                "Set data.skip_bad=true to skip such rows."
            ) from error
    if num_bad:
        logger.warning("%s: %d bad rows were left out.", name, num_bad)
    return rows


def _make_row(record: Record, source: Source, name: str, keep_unanswered: bool) -> Row:
    answer_field = {} if source.answer_column == "output" else {"output": source.answer_column}
    fields: Mapping[Any, str] = {**answer_field, **source.fields}
    text, instruction, answer = (record[find_column(key, fields, record)] for key in ("input", "instruction", "output"))
    answer = get_first_answer(answer) if source.choices is None else find_right_choice(record[source.choices], answer)
    if not all(isinstance(part, str) for part in (text, instruction, answer)):
        raise TypeError("input, instruction and answer must be text")
    if not answer.strip():
        if not keep_unanswered:
            raise TypeError("the answer is empty; data.keep_unanswered=true keeps such rows")
        answer = ""
    return Row(text, instruction, answer, name)


def find_right_choice(choices: Any, answer: Any) -> str:
    """Find the right choice of a multiple-choice question.

    Args:
        choices: A list of texts, or a table of the lists text and label (ARC, CommonsenseQA).
        answer: The right choice: its number from 0, its letter from A, or its text.

    Returns:
        Text of the right choice.

    Raises:
        ValueError: If the answer is not one of the choices.
        TypeError: If the choices are not a list.

    Example:
        >>> find_right_choice(["cat", "dog"], "B")
        'dog'
    """
    if isinstance(choices, Mapping) and {"text", "label"} <= set(choices):
        return str(dict(zip(choices["label"], choices["text"], strict=True))[answer])
    if not isinstance(choices, (list, tuple)):
        raise TypeError(f"choices must be a list, not {choices!r}")
    texts = [str(choice) for choice in choices]
    if isinstance(answer, str):
        if answer in texts:
            return answer
        if len(answer.strip("() .")) == 1 and answer.strip("() .").isalpha():
            answer = ord(answer.strip("() .").upper()) - ord("A")
    if not str(answer).isdigit() or int(answer) >= len(texts):
        raise ValueError(f"{answer!r} is not one of the choices {texts}")
    return texts[int(answer)]


def _read_source(source: Source, data: AnsweringData, rng: random.Random, seed: int, read_file: ReadFile) -> list[Row]:
    """Read, filter and sample the rows of a source, with unstripped answers."""
    limit = source.max_characters or data.max_characters
    rows = [
        row
        for row in read_rows(
            source, data.folder, skip_bad=data.skip_bad, keep_unanswered=data.keep_unanswered, read_file=read_file
        )
        if source.min_characters <= len(row.text) <= (limit or len(row.text))
    ]
    if data.same_texts and not source.path.endswith(".yaml"):
        rows.sort(key=lambda row: _rank_text(row.text, seed))
    add_distractor = _make_distractor_adder([row.text for row in rows], source, data, rng, seed, read_file)
    rows = _sample_rows(rows, source, rng, in_order=data.same_texts)
    if source.keywords:
        keywords = cache_salient_words([row.text for row in rows], source.keywords, KEYWORD_ENCODER, data.cache)
        rows = [replace(row, answer=words) for row, words in zip(rows, keywords, strict=True) if words]
    repeats, fraction = divmod(source.weight, 1)
    if source.weight != 1:
        rows = rows * int(repeats) + rng.sample(rows, round(fraction * len(rows)))
    rows = _sample_wordings(rows, source, rng)
    return [replace(row, text=add_distractor(row.text), target=source.target) for row in rows]


def _sample_rows(rows: list[Row], source: Source, rng: random.Random, *, in_order: bool) -> list[Row]:
    """Filter rows by instruction and answer, and sample them up to the source's caps."""
    if source.keywords:
        rows = list({row.text: row for row in rows}.values())
    if source.keep_instructions:
        rows = [row for row in rows if row.instruction in source.keep_instructions]
    if source.answers:
        rows = [replace(row, answer=source.answers[row.answer]) for row in rows if row.answer in source.answers]
    if source.max_rows_per_text is not None:
        count: Counter[str] = Counter()
        capped_rows = []
        for row in rows if in_order else rng.sample(rows, len(rows)):
            count[row.text] += 1
            if count[row.text] <= source.max_rows_per_text:
                capped_rows.append(row)
        rows = capped_rows
    if source.cap is None or len(rows) <= source.cap:
        return rows
    return rows[: source.cap] if in_order else rng.sample(rows, source.cap)


def _sample_wordings(rows: list[Row], source: Source, rng: random.Random) -> list[Row]:
    """Replace the instructions of rows by wordings of the source's instructions, or of the questions that they name."""
    if not source.question_names and source.wordings == 1:
        return [replace(row, instruction=rng.choice(source.instructions)) for row in rows] if source.instructions else rows
    asked_rows = []
    for row in rows:
        wordings: Sequence[str] = source.instructions
        if source.question_names and row.instruction in read_questions():
            wordings = read_questions()[row.instruction].ask
        count = min(source.wordings, len(wordings))
        asked_rows += [replace(row, instruction=wording) for wording in rng.sample(wordings, count)] if wordings else [row]
    return asked_rows


def _make_distractor_adder(
    texts: Sequence[str], source: Source, data: AnsweringData, rng: random.Random, seed: int, read_file: ReadFile
) -> Callable[[str], str]:
    """Make the function that puts a distractor before or after a text; without distractors it returns the text."""
    if not source.distractors:
        return lambda text: text
    limit = source.max_characters or data.max_characters
    distractor_rows = read_rows(Source(source.distractors), data.folder, skip_bad=data.skip_bad, read_file=read_file)
    distractors = [row.text for row in distractor_rows]
    distractors = [text for text in distractors if not limit or len(text) <= limit]
    if not distractors:
        limited = f" of at most {limit} characters" if limit else ""
        raise RecipeError(
            f"{get_source_name(source)}: {source.distractors} has no text{limited}. Choose other distractors or max_characters."
        )
    if not data.same_texts:
        return lambda text: " ".join(rng.sample([text, rng.choice(distractors)], 2))
    ranked, partners = (sorted(set(group), key=lambda text: _rank_text(text, seed)) for group in (texts, distractors))
    partner_of = {text: partners[number % len(partners)] for number, text in enumerate(ranked)}  # same rank in either file
    return lambda text: " ".join(sorted([text, partner_of[text]], key=lambda part: _rank_text(part, seed)))


def _rank_text(text: str, seed: int) -> str:
    """Hash a text into its rank, an arbitrary order that is the same in every file."""
    return hashlib.sha256(f"{seed} {text}".encode("utf-8", "surrogatepass")).hexdigest()


def load_rows(data: AnsweringData, seed: int = 0) -> list[Row]:
    """Read, filter and sample all sources of a recipe.

    Args:
        data: The recipe's section ``data``.
        seed: Seed of caps, weights and sampled instructions, unless ``data.seed`` is set.

    Returns:
        The rows, source by source; the trainer shuffles them.

    Raises:
        RecipeError: If a file or a row cannot be read, or a source has no row left.
    """
    seed = seed if data.seed is None else data.seed
    rngs = [random.Random(f"{seed} {number} {get_source_name(source)}") for number, source in enumerate(data.sources)]
    rows = []
    read_file = cache(_read_file)  # many sources take rows of one file
    for source, rng in zip(data.sources, rngs, strict=True):
        source_rows = _read_source(source, data, rng, seed, read_file)
        if not source_rows:
            raise RecipeError(
                f"No row of {get_source_name(source)} is left. Check answers, keep_instructions, keep, drop_flags, weight and "
                "lengths."
            )
        rows += source_rows
    if data.strip_stopwords:
        rows = [replace(row, answer=strip_stopwords(row.answer, data.stopwords)) for row in rows]
    return rows


class HasText(Protocol):
    """Interface of rows that can be held out."""

    @property
    def text(self) -> str:
        """The text, which is either trained on or held out."""


AnyRow = TypeVar("AnyRow", bound=HasText)


def hold_out(rows: Sequence[AnyRow], count: int, seed: int = 0) -> tuple[list[AnyRow], list[AnyRow]]:
    """Split rows into training rows and held-out rows.

    Args:
        rows: All rows.
        count: Number of rows to hold out.
        seed: Random seed.

    Returns:
        The training rows and the held-out rows; they share no text.

    Raises:
        RecipeError: If no training row is left.
    """
    if not count:
        return list(rows), []
    texts = list(dict.fromkeys(row.text for row in rows))
    random.Random(f"{seed} held out").shuffle(texts)
    held_out_texts: set[str] = set()
    total, row_counts = 0, {text: 0 for text in texts}
    for row in rows:
        row_counts[row.text] += 1
    for text in texts:
        if total >= count:
            break
        held_out_texts.add(text)
        total += row_counts[text]
    training_rows = [row for row in rows if row.text not in held_out_texts]
    if not training_rows:
        raise RecipeError(f"data.held_out={count} leaves none of {len(rows)} rows for training.")
    return training_rows, [row for row in rows if row.text in held_out_texts]
