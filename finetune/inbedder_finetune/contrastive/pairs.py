"""Pairs with negatives from MEDI rows, questions with passages, and natural language inference.

A row of MEDI (INSTRUCTOR paper, section 2.3) holds a query, a positive (``pos``) and a negative (``neg``), each
``[instruction, text]``, and the id of their task::

    {"query": ["Represent the question for retrieval: ", "Who sings Love Story?"], "pos": [...], "neg": [...], "task_id": 0}

The authors' json is a list of such rows; later versions have task_name. Some of its texts are numbers, which their code and ours
read as text. In our jsonl a text without an instruction may be a plain
string, ``neg`` may be a list of negatives, and a task may have a name. When ``pos`` is a plain string, a list of strings as
``neg`` means several negatives.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from inbedder.errors import RecipeError
from inbedder.prompting.short_instructions import make_tag, shorten_instruction
from inbedder_finetune.column_names import find_column
from inbedder_finetune.contrastive.contrastive_recipe import PairData, PairSource
from inbedder_finetune.sources import Record, filter_records, read_records

NLI_LABELS = ("entailment", "neutral", "contradiction")
"""Labels of ``format: nli``; "-", SNLI's mark of a pair whose annotators disagree, leaves a pair out."""


class InstructedText(NamedTuple):
    """A text with its instruction."""

    instruction: str
    """The instruction, which is put directly before the text, so it usually ends with a space; "" for none."""
    text: str
    """The text."""


@dataclass(frozen=True)
class Pair:
    """A query with its positive and negatives."""

    query: InstructedText
    """The query x."""
    positive: InstructedText
    """The positive y+."""
    negatives: tuple[InstructedText, ...]
    """The hard negatives y-."""
    task: str
    """Name of the task, unique across files."""
    source: str
    """Name of the file."""
    is_anchor: bool = True
    """Whether the row has a loss; the texts of other rows are only negatives (Data-CUBE's mask)."""

    @property
    def text(self) -> str:
        """The text of the positive, which is either trained on or held out."""
        return self.positive.text


def read_pairs(source: PairSource, folder: Path | str = ".", *, skip_bad: bool = False, seed: int = 0) -> list[Pair]:
    """Read the rows of a source that pass its filters.

    Args:
        source: File, format, instructions and filters.
        folder: Folder of the files.
        skip_bad: Whether to skip bad rows.
        seed: Seed of the sampled negatives.

    Returns:
        The pairs, each with ``source.negative_count`` negatives.

    Raises:
        RecipeError: If a row is bad; the message names the file, the row and the problem.
    """
    make = {"medi": _read_medi, "qa": _read_qa, "nli": _read_nli}[source.format]
    rng = random.Random(f"{seed} {source.path} negatives")
    pairs = []
    for number, pair in make(_filter_records(source, Path(folder), skip_bad), source):
        try:
            if isinstance(pair, ValueError):
                raise pair
            if len(pair.negatives) < source.negative_count:
                raise ValueError(_describe_missing_negatives(pair, source))
            if len(pair.negatives) > source.negative_count:
                pair = replace(pair, negatives=tuple(rng.sample(pair.negatives, source.negative_count)))
            selected = _shorten_instructions(pair, source.instruction_detail) if _is_selected(pair, source) else None
        except ValueError as error:
            if skip_bad:
                continue
            raise RecipeError(
                f"{source.path}, row {number}: {error}. Correct the row, or set data.skip_bad=true to skip such rows."
            ) from error
        if selected is not None:
            pairs.append(selected)
    return pairs


def _is_selected(pair: Pair, source: PairSource) -> bool:
    if source.max_characters is not None and max(len(pair.query.text), len(pair.text)) > source.max_characters:
        return False
    is_symmetric = pair.query.instruction == pair.positive.instruction
    if source.symmetry is not None and is_symmetric != (source.symmetry == "symmetric"):
        return False
    return not pair.query.instruction.startswith(source.drop_instructions)


def _shorten_instructions(pair: Pair, level: str) -> Pair:
    """Shorten the instructions of a pair; a text without one keeps none, except that a tag is put before every text."""
    if level == "whole":
        return pair
    tag = make_tag(pair.task.removeprefix(f"{pair.source} "))

    def shorten(text: InstructedText) -> InstructedText:
        if level == "simple":
            return text._replace(instruction=text.instruction and shorten_instruction(text.instruction))
        return text._replace(instruction=tag if level == "tag" else "")

    negatives = tuple(map(shorten, pair.negatives))
    return replace(pair, query=shorten(pair.query), positive=shorten(pair.positive), negatives=negatives)


def _describe_missing_negatives(pair: Pair, source: PairSource) -> str:
    problem = "has no negative (neg)" if not pair.negatives else f"has {len(pair.negatives)} negatives of {source.negative_count}"
    return f"{problem}; add one as [instruction, text], or set the source's negatives to {len(pair.negatives)}"


def _filter_records(source: PairSource, folder: Path, skip_bad: bool) -> Iterator[tuple[int, Record]]:
    for number, record in filter_records(read_records(folder / source.path), source.path, source.keep, source.drop_flags):
        if not isinstance(record, Mapping):
            if skip_bad:
                continue
            raise RecipeError(
                f"{source.path}, row {number}: not an object but {str(record)[:60]!r}. Correct it, or set data.skip_bad=true."
            )
        yield number, record


def _read_medi(records: Iterator[tuple[int, Record]], source: PairSource) -> Iterator[tuple[int, Pair | ValueError]]:
    fields: Mapping[Any, str] = source.fields
    names = {key: fields.get(key, key) for key in ("query", "pos", "neg", "task_id")}
    for number, record in records:
        try:
            task = record.get(names["task_id"], record.get("task_name"))
            if isinstance(task, bool) or not isinstance(task, (int, str)):
                hint = "; pairs with labels are read by the source's format: nli" if "label" in record else ""
                raise ValueError(f"task_id must be a number or a name, not {task!r}{hint}")
            query, positive = (_parse_text(record.get(names[key]), key) for key in ("query", "pos"))
            negatives = _parse_negatives(record.get(names["neg"]), plain=isinstance(record[names["pos"]], str))
            yield number, Pair(query, positive, negatives, f"{source.path} {task}", source.path)
        except ValueError as error:
            yield number, error


def _parse_negatives(value: Any, *, plain: bool) -> tuple[InstructedText, ...]:
    if value is None or value == [] or value == "":
        return ()
    is_single = not isinstance(value, list) or (not plain and len(value) == 2 and not any(isinstance(one, list) for one in value))
    return tuple(_parse_text(each, "neg") for each in ([value] if is_single else value))


def _parse_text(value: Any, key: str) -> InstructedText:
    if value is None:
        raise ValueError(f"has no {key}; each row has query, pos and neg as [instruction, text], and task_id")
    parts = ["", value] if isinstance(value, str) else value
    if isinstance(parts, list) and len(parts) == 2 and isinstance(parts[1], (int, float)):
        parts = [parts[0], str(parts[1])]
    if not isinstance(parts, (list, tuple)) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{key} must be [instruction, text] or a text, not {str(value)[:60]!r}")
    instruction, text = parts
    if not isinstance(value, str) and not instruction.strip():
        raise ValueError(f"the instruction of {key} is empty; write a plain text instead")
    if not text.strip():
        raise ValueError(f"the text of {key} is empty")
    return InstructedText(instruction, text)


def _get_texts(record: Record, keys: Sequence[str], source: PairSource) -> list[str]:
    fields: Mapping[Any, str] = source.fields
    names = [find_column(key, fields, record) if source.format == "qa" else fields.get(key, key) for key in keys]
    texts = [record.get(name) for name in names]
    for key, text in zip(keys, texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                f"{key} must be a non-empty text, not {text!r}; each row needs {', '.join(keys)}, or the columns in `fields`"
            )
    return [str(text) for text in texts]


def _get_label(record: Record, source: PairSource) -> str:
    fields: Mapping[Any, str] = source.fields
    label = record.get(fields.get("label", "label"))
    if label in (*NLI_LABELS, "-"):
        return str(label)
    hint = ""
    if str(label) in ("0", "1"):
        hint = (
            "; in pairs with labels 0 and 1, write entailment for 1 and contradiction for 0, and set the source's negatives to 0 "
            "if premises have no pair with 0"
        )
    raise ValueError(f"label must be {', '.join(NLI_LABELS[:-1])} or {NLI_LABELS[-1]}, not {label!r}{hint}")


def _read_qa(records: Iterator[tuple[int, Record]], source: PairSource) -> Iterator[tuple[int, Pair | ValueError]]:
    for number, record in records:
        try:
            question, passage = _get_texts(record, ("instruction", "input"), source)
        except ValueError as error:
            yield number, error
            continue
        query, positive = InstructedText(source.query_instruction, question), InstructedText(source.positive_instruction, passage)
        yield number, Pair(query, positive, (), source.path, source.path)


def _read_nli(records: Iterator[tuple[int, Record]], source: PairSource) -> Iterator[tuple[int, Pair | ValueError]]:
    """Yield a pair for each hypothesis that a premise entails; premises without a contradiction are skipped."""
    hypotheses: dict[str, dict[str, list[tuple[int, str]]]] = {}
    for number, record in records:
        try:
            premise, hypothesis = _get_texts(record, ("premise", "hypothesis"), source)
            label = _get_label(record, source)
        except ValueError as error:
            yield number, error
            continue
        hypotheses.setdefault(premise, defaultdict(list))[label].append((number, hypothesis))
    for premise, by_label in hypotheses.items():
        negatives = tuple(InstructedText(source.positive_instruction, text) for _, text in by_label["contradiction"])
        if len(negatives) >= source.negative_count:
            query = InstructedText(source.query_instruction, premise)
            for number, text in by_label["entailment"]:
                yield number, Pair(query, InstructedText(source.positive_instruction, text), negatives, source.path, source.path)


def load_pairs(data: PairData, seed: int = 0) -> list[Pair]:
    """Read, filter and sample all sources of a recipe.

    Args:
        data: The recipe's section ``data``.
        seed: Seed of caps and sampled negatives.

    Returns:
        The pairs, source by source, in the order of their files.

    Raises:
        RecipeError: If a file or a row is bad, or a source has no row left.
    """
    pairs = []
    for number, source in enumerate(data.sources):
        rng = random.Random(f"{seed} {number} {source.path}")
        source_pairs = read_pairs(source, data.folder, skip_bad=data.skip_bad, seed=seed)
        if source.task_cap is not None:
            tasks: dict[str, list[int]] = defaultdict(list)
            for row, pair in enumerate(source_pairs):
                tasks[pair.task].append(row)
            source_pairs = [source_pairs[row] for rows in tasks.values() for row in _sample_rows(rows, source.task_cap, rng)]
        source_pairs = _sample_rows(source_pairs, source.cap, rng)
        if not source_pairs:
            hint = ""
            if source.format == "nli" and source.negative_count:
                hint = " A premise without a contradiction is skipped: set the source's negatives to 0 to keep it."
            raise RecipeError(f"No row of {source.path} is left. Check its format, filters, labels and lengths.{hint}")
        pairs += source_pairs
    return pairs


def _sample_rows(rows: list[Any], max_rows: int | None, rng: random.Random) -> list[Any]:
    if max_rows is None or len(rows) <= max_rows:
        return rows
    return [rows[i] for i in sorted(rng.sample(range(len(rows)), max_rows))]
