"""Question-answer rows: read, filtered, sampled, answers stripped of stopwords.

Follows section 4.4 of the InBedder paper: the union of question-answering sets, the paragraph as input, the question as
instruction, and answers without stopwords. Of our list negations and quantities stay and punctuation goes; of NLTK's, as in the
paper, negations go, and clitics ("n't", "'s") and punctuation stay. An answer that holds nothing else is kept as it is.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError, RecipeError
from inbedder.prompting.stopwords import StopwordList, stopwords
from inbedder_finetune.answering.answering_recipe import AnsweringData
from inbedder_finetune.answering.keywords import kept_words
from inbedder_finetune.answering.training_row import Row
from inbedder_finetune.column_names import column_of, first_answer
from inbedder_finetune.sources import Record, Source, file_records, hub_records
from inbedder_finetune.synthetic.compose import WRITTEN

KEYWORD_ENCODER = "all-MiniLM-L6-v2"
PUNCTUATION = set(".,;:!?\"'`()[]{}-–—…") | {"``", "''", "--", "..."}


def strip_stopwords(answer: str, which: StopwordList = "ours") -> str:
    """Leave out stopwords, by the tokens of NLTK's NLTKWordTokenizer (which needs no download).

    Args:
        answer: An answer as its data set has it.
        which: The list. With "ours" punctuation marks go too; with "nltk", as in the paper, all other tokens stay.

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
    marks = PUNCTUATION if which == "ours" else frozenset[str]()
    kept = [word for word in words if word.lower() not in stopwords(which) and word not in marks]
    return " ".join(answer.split() if PUNCTUATION.issuperset(kept) else kept)


def name_of(source: Source) -> str:
    """What messages, tables and cards call a source."""
    return source.hub or source.path


def _records(source: Source, folder: Path) -> Any:
    if source.hub:
        return hub_records(source)
    shipped = WRITTEN / source.path
    path = shipped if shipped.exists() and not (folder / source.path).exists() else folder / source.path
    return file_records(path, source.questions, long=source.long)


def read_rows(source: Source, folder: Path | str = ".", *, skip_bad: bool = False) -> list[Row]:
    """Read the rows of a source that its filters keep.

    Args:
        source: File or hub id, fields and filters.
        folder: Where files lie.
        skip_bad: Skip rows that lack a field or cannot be parsed.

    Returns:
        The rows, answers as they stand.

    Raises:
        RecipeError: Naming file and row of the first bad row.
    """
    name, rows = name_of(source), []
    for number, record in _records(source, Path(folder)):
        try:
            if not isinstance(record, Mapping):
                raise TypeError(record if isinstance(record, str) else "not an object")
            if _is_kept(record, source):
                rows.append(_row(record, source, name))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            if skip_bad:
                continue
            raise RecipeError(
                f"{name}, row {number}: not a question-answer row ({error!r}). Each row has input, instruction and "
                f"{source.answer_from} (or context, question and answer), or the names that `fields` gives. "
                "Set data.skip_bad=true to skip such rows."
            ) from error
    return rows


def _is_kept(record: Record, source: Source) -> bool:
    if any(_as_text(record.get(key)) != _as_text(value) for key, value in source.keep.items()):
        return False
    return not (source.drop_flags and set(record.get("flags") or ()) & set(source.drop_flags))


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _row(record: Record, source: Source, name: str) -> Row:
    fields = source.fields if source.answer_from == "output" else {"output": source.answer_from, **source.fields}
    text, instruction, answer = (record[column_of(key, fields, record)] for key in ("input", "instruction", "output"))
    answer = first_answer(answer) if source.choices is None else right_choice(record[source.choices], answer)
    if not all(isinstance(part, str) for part in (text, instruction, answer)) or not answer.strip():
        raise TypeError("input, instruction and answer must be text, and the answer not empty")
    return Row(text, instruction, answer, name)


def right_choice(choices: Any, answer: Any) -> str:
    """The right one of several choices.

    Args:
        choices: The choices: a list of texts, or a table of lists text and label (ARC, CommonsenseQA).
        answer: The right one: its number from 0, its letter from A, or its text.

    Returns:
        Its text.

    Raises:
        ValueError: When it is none of them.
        TypeError: When the choices are no list.
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
        raise ValueError(f"{answer!r} is none of the choices {texts}")
    return texts[int(answer)]


def _read_source(source: Source, data: AnsweringData, draw: random.Random, seed: int) -> list[Row]:
    """The rows of a source as they are learned, answers not yet stripped."""
    limit = source.max_characters or data.max_characters
    rows = [
        row
        for row in read_rows(source, data.folder, skip_bad=data.skip_bad)
        if source.min_characters <= len(row.text) <= (limit or len(row.text))
    ]
    if data.same_texts and not source.path.endswith(".yaml"):
        rows.sort(key=lambda row: _rank(row.text, seed))
    beside = _beside([row.text for row in rows], source, data, draw, seed)
    rows = _drawn(rows, source, draw, in_order=data.same_texts)
    if source.keywords:
        named = kept_words([row.text for row in rows], source.keywords, KEYWORD_ENCODER, data.cache)
        rows = [replace(row, answer=words) for row, words in zip(rows, named, strict=True) if words]
    whole, part = divmod(source.weight, 1)
    if source.weight != 1:
        rows = rows * int(whole) + draw.sample(rows, round(part * len(rows)))
    if source.instructions:
        rows = [replace(row, instruction=draw.choice(source.instructions)) for row in rows]
    rows = [replace(row, text=beside(row.text), target=source.target, taught_as=source.taught_as) for row in rows]
    return rows if source.answered_by is None else _answered(rows, source.answered_by)


def _answered(rows: list[Row], model: str) -> list[Row]:
    """Rows with a model's answers in place of their own; those without an answer are left out."""
    answers = InBedder(model).answer([row.text for row in rows], [row.instruction for row in rows])
    return [replace(row, answer=str(answer)) for row, answer in zip(rows, answers, strict=True) if str(answer).strip()]


def _drawn(rows: list[Row], source: Source, draw: random.Random, *, in_order: bool) -> list[Row]:
    """The rows that a source's filters and caps leave."""
    if source.keywords:
        rows = list({row.text: row for row in rows}.values())
    if source.only:
        rows = [row for row in rows if row.instruction in source.only]
    if source.answers:
        rows = [replace(row, answer=source.answers[row.answer]) for row in rows if row.answer in source.answers]
    if source.per_text is not None:
        count: Counter[str] = Counter()
        kept = []
        for row in rows if in_order else draw.sample(rows, len(rows)):
            count[row.text] += 1
            if count[row.text] <= source.per_text:
                kept.append(row)
        rows = kept
    if source.cap is None or len(rows) <= source.cap:
        return rows
    return rows[: source.cap] if in_order else draw.sample(rows, source.cap)


def _beside(texts: Sequence[str], source: Source, data: AnsweringData, draw: random.Random, seed: int) -> Callable[[str], str]:
    """What becomes of a text: itself, or itself with a text of another source in front of it or behind it."""
    if not source.beside:
        return lambda text: text
    limit = source.max_characters or data.max_characters
    others = [row.text for row in read_rows(Source(source.beside), data.folder, skip_bad=data.skip_bad)]
    others = [text for text in others if not limit or len(text) <= limit]
    if not others:
        raise RecipeError(
            f"{name_of(source)}: no text of {source.beside} has at most {limit} characters to stand beside. Raise max_characters."
        )
    if not data.same_texts:
        return lambda text: " ".join(draw.sample([text, draw.choice(others)], 2))
    first, ranked = (sorted(set(texts_of_one), key=lambda text: _rank(text, seed)) for texts_of_one in (texts, others))
    partners = {text: ranked[number % len(ranked)] for number, text in enumerate(first)}  # of the same rank, from either file
    return lambda text: " ".join(sorted([text, partners[text]], key=lambda side: _rank(side, seed)))


def _rank(text: str, seed: int) -> str:
    """An order of texts that says nothing of them and is the same in every file."""
    return hashlib.sha256(f"{seed} {text}".encode("utf-8", "surrogatepass")).hexdigest()


def load_rows(data: AnsweringData, seed: int = 0) -> list[Row]:
    """Read, filter and sample all sources of a recipe.

    Args:
        data: The recipe's data section.
        seed: Seed of the caps, weights and drawn instructions, where ``data.seed`` says none.

    Returns:
        The rows, source after source; the trainer shuffles.

    Raises:
        RecipeError: When a file or a row cannot be read, or nothing is left.
    """
    seed = seed if data.seed is None else data.seed
    draws = [random.Random(f"{seed} {number} {name_of(source)}") for number, source in enumerate(data.sources)]
    rows = []
    for source, draw in zip(data.sources, draws, strict=True):
        of_source = _read_source(source, data, draw, seed)
        if not of_source:
            raise RecipeError(f"No row of {name_of(source)} is left: check its answers, only, keep, drop_flags and lengths.")
        rows += of_source
    if data.strip_stopwords:
        rows = [replace(row, answer=strip_stopwords(row.answer, data.stopwords)) for row in rows]
    return rows


class HasText(Protocol):
    """A row that can be held out."""

    @property
    def text(self) -> str:
        """What held-out rows share with no learned row."""


AnyRow = TypeVar("AnyRow", bound=HasText)


def hold_out(rows: Sequence[AnyRow], count: int, seed: int = 0) -> tuple[list[AnyRow], list[AnyRow]]:
    """Split rows into those that are learned and those whose loss is watched.

    Args:
        rows: All rows.
        count: How many to hold out.
        seed: Seed of the draw.

    Returns:
        The learned rows and the held-out ones; no text is on both sides.

    Raises:
        RecipeError: When too few rows would be left.
    """
    if not count:
        return list(rows), []
    texts = list(dict.fromkeys(row.text for row in rows))
    random.Random(f"{seed} held out").shuffle(texts)
    watched: set[str] = set()
    total, by_text = 0, {text: 0 for text in texts}
    for row in rows:
        by_text[row.text] += 1
    for text in texts:
        if total >= count:
            break
        watched.add(text)
        total += by_text[text]
    learned = [row for row in rows if row.text not in watched]
    if not learned:
        raise RecipeError(f"data.held_out={count} leaves nothing of {len(rows)} rows to learn.")
    return learned, [row for row in rows if row.text in watched]
