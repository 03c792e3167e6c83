"""Pairs with negatives: MEDI rows, questions with their passages, inference pairs.

A row of MEDI (INSTRUCTOR paper, section 2.3) holds a query, what belongs to it (``pos``) and what does not (``neg``), each
``[instruction, text]``, and the id of the task that they come from::

    {"query": ["Represent the question for retrieval: ", "Who sings Love Story?"], "pos": [...], "neg": [...], "task_id": 0}

The authors' json is a list of such rows (later versions say task_name). In our jsonl a text without instruction may be a plain
string, ``neg`` may be a list of several, and a task may have a name: where ``pos`` is a plain string, a list of strings are
several negatives.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from inbedder.errors import RecipeError
from inbedder_finetune.column_names import column_of
from inbedder_finetune.contrastive.contrastive_recipe import PairData, PairSource
from inbedder_finetune.sources import Record, file_records


class Instructed(NamedTuple):
    """A text and the instruction in front of it."""

    instruction: str
    """Put before the text as it stands, so it ends in a space or a colon; empty for none."""
    text: str
    """The text."""


@dataclass(frozen=True)
class Pair:
    """A query, what belongs to it, and what does not."""

    query: Instructed
    """x."""
    positive: Instructed
    """y+."""
    negatives: tuple[Instructed, ...]
    """y-, hard negatives."""
    task: str
    """Batches hold one task; those of two files are never the same."""
    source: str
    """Name of the file."""
    is_anchor: bool = True
    """Whether its own loss counts; the texts of a row that is none are only the negatives of others (Data-CUBE's mask)."""

    @property
    def text(self) -> str:
        """What held-out rows share with no learned row: the positive."""
        return self.positive.text


def read_pairs(source: PairSource, folder: Path | str = ".", *, skip_bad: bool = False, seed: int = 0) -> list[Pair]:
    """Read the rows of a source that its filters keep.

    Args:
        source: File, format, instructions and filters.
        folder: Where files lie.
        skip_bad: Skip rows that cannot be used.
        seed: Seed of the drawn negatives.

    Returns:
        The pairs, each with ``source.wanted`` negatives.

    Raises:
        RecipeError: Naming file, row and what is wrong with it.
    """
    make = {"medi": _medi, "qa": _qa, "nli": _nli}[source.format]
    draw = random.Random(f"{seed} {source.path} negatives")
    pairs = []
    for number, pair in make(_kept(source, Path(folder), skip_bad), source):
        try:
            if isinstance(pair, ValueError):
                raise pair
            if len(pair.negatives) < source.wanted:
                raise ValueError(_few(pair, source))
            if len(pair.negatives) > source.wanted:
                pair = Pair(pair.query, pair.positive, tuple(draw.sample(pair.negatives, source.wanted)), pair.task, pair.source)
        except ValueError as error:
            if skip_bad:
                continue
            raise RecipeError(
                f"{source.path}, row {number}: {error}. Mend the row, or set data.skip_bad=true to skip such rows."
            ) from error
        if source.max_characters is None or max(len(pair.query.text), len(pair.text)) <= source.max_characters:
            pairs.append(pair)
    return pairs


def _few(pair: Pair, source: PairSource) -> str:
    lack = "has no negative (neg)" if not pair.negatives else f"has {len(pair.negatives)} negatives of {source.wanted}"
    return f"{lack}; give it one as [instruction, text], or set the source's negatives to {len(pair.negatives)}"


def _kept(source: PairSource, folder: Path, skip_bad: bool) -> Iterator[tuple[int, Record]]:
    for number, record in file_records(folder / source.path):
        if not isinstance(record, Mapping):
            if skip_bad:
                continue
            raise RecipeError(
                f"{source.path}, row {number}: not an object but {str(record)[:60]!r}. Mend it, or set data.skip_bad=true."
            )
        flagged = set(source.drop_flags) & set(record.get("flags") or ())
        if not flagged and all(str(record.get(key)) == value for key, value in source.keep.items()):
            yield number, record


def _medi(records: Iterator[tuple[int, Record]], source: PairSource) -> Iterator[tuple[int, Pair | ValueError]]:
    names = {key: source.fields.get(key, key) for key in ("query", "pos", "neg", "task_id")}
    for number, record in records:
        try:
            task = record.get(names["task_id"], record.get("task_name"))
            if isinstance(task, bool) or not isinstance(task, (int, str)):
                raise ValueError(f"task_id must be a number or a name, not {task!r}")
            query, positive = (_instructed(record.get(names[key]), key) for key in ("query", "pos"))
            negatives = _several(record.get(names["neg"]), plain=isinstance(record[names["pos"]], str))
            yield number, Pair(query, positive, negatives, f"{source.path} {task}", source.path)
        except ValueError as error:
            yield number, error


def _several(value: Any, *, plain: bool) -> tuple[Instructed, ...]:
    if value is None or value == [] or value == "":
        return ()
    is_single = not isinstance(value, list) or (not plain and len(value) == 2 and all(isinstance(part, str) for part in value))
    return tuple(_instructed(each, "neg") for each in ([value] if is_single else value))


def _instructed(value: Any, key: str) -> Instructed:
    if value is None:
        raise ValueError(f"has no {key}; each row has query, pos and neg as [instruction, text], and task_id")
    parts = ["", value] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{key} must be [instruction, text] or a text, not {str(value)[:60]!r}")
    instruction, text = parts
    if not isinstance(value, str) and not instruction.strip():
        raise ValueError(f"the instruction of {key} is empty; write the text alone where it has none")
    if not text.strip():
        raise ValueError(f"the text of {key} is empty")
    return Instructed(instruction, text)


def _texts(record: Record, keys: Sequence[str], source: PairSource) -> list[str]:
    names = [column_of(key, source.fields, record) if source.format == "qa" else source.fields.get(key, key) for key in keys]
    texts = [record.get(name) for name in names]
    for key, text in zip(keys, texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                f"{key} must be a text that is not empty, not {text!r}; each row has {', '.join(keys)}, or what `fields` names"
            )
    return [str(text) for text in texts]


def _qa(records: Iterator[tuple[int, Record]], source: PairSource) -> Iterator[tuple[int, Pair | ValueError]]:
    for number, record in records:
        try:
            question, passage = _texts(record, ("instruction", "input"), source)
        except ValueError as error:
            yield number, error
            continue
        query, positive = Instructed(source.query_instruction, question), Instructed(source.positive_instruction, passage)
        yield number, Pair(query, positive, (), source.path, source.path)


def _nli(records: Iterator[tuple[int, Record]], source: PairSource) -> Iterator[tuple[int, Pair | ValueError]]:
    """One row for each hypothesis that a premise entails; premises without a contradiction are left out."""
    found: dict[str, dict[str, list[tuple[int, str]]]] = {}
    for number, record in records:
        try:
            premise, hypothesis, label = _texts(record, ("premise", "hypothesis", "label"), source)
        except ValueError as error:
            yield number, error
            continue
        found.setdefault(premise, defaultdict(list))[label].append((number, hypothesis))
    for premise, labelled in found.items():
        negatives = tuple(Instructed(source.positive_instruction, text) for _, text in labelled["contradiction"])
        if len(negatives) >= source.wanted:
            query = Instructed(source.query_instruction, premise)
            for number, text in labelled["entailment"]:
                yield number, Pair(query, Instructed(source.positive_instruction, text), negatives, source.path, source.path)


def load_pairs(data: PairData, seed: int = 0) -> list[Pair]:
    """Read, filter and down-sample all sources of a recipe.

    Args:
        data: The recipe's data section.
        seed: Seed of the caps and drawn negatives.

    Returns:
        The pairs, source after source, each in the order of its file.

    Raises:
        RecipeError: When a file or a row cannot be used, or nothing is left of a source.
    """
    pairs = []
    for number, source in enumerate(data.sources):
        draw = random.Random(f"{seed} {number} {source.path}")
        of_source = read_pairs(source, data.folder, skip_bad=data.skip_bad, seed=seed)
        if source.task_cap is not None:
            tasks: dict[str, list[int]] = defaultdict(list)
            for row, pair in enumerate(of_source):
                tasks[pair.task].append(row)
            of_source = [of_source[row] for rows in tasks.values() for row in _drawn(rows, source.task_cap, draw)]
        of_source = _drawn(of_source, source.cap, draw)
        if not of_source:
            raise RecipeError(f"No row of {source.path} is left: check its format, keep, drop_flags, labels and lengths.")
        pairs += of_source
    return pairs


def _drawn(rows: list[Any], most: int | None, draw: random.Random) -> list[Any]:
    if most is None or len(rows) <= most:
        return rows
    return [rows[i] for i in sorted(draw.sample(range(len(rows)), most))]
