"""A corpus with two label columns: what contrast triplets and two-criteria clustering are drawn from."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inbedder.errors import InputError, shown, shown_names
from inbedder.io.tables import read_rows, read_table
from inbedder.prompting.templates import resolve_instruction
from inbedder_evaluation.tasks.sets import known_set
from inbedder_evaluation.tasks.task import TaskInfo, fingerprint, instructions_of, read_hub

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TwoCriteriaCorpus:
    """Texts, two labels each, and the instruction that asks for each label."""

    name: str
    """Name of the corpus."""
    texts: list[str]
    """n texts."""
    criteria: tuple[str, str]
    """Names of the label columns."""
    labels: tuple[list[str], list[str]]
    """n labels per criterion."""
    instructions: tuple[str, str]
    """What to ask for each criterion."""
    source: str
    """Where the rows come from."""
    revision: str
    """Hash of the rows."""
    licence: str = "the user's own"
    """Licence of the data."""
    citation: str = ""
    """Who made it."""
    dropped: int = 0
    """Rows without a text or a label, which were left out."""

    def first_input(self) -> tuple[str, str]:
        """The first text and the first criterion's instruction."""
        return self.texts[0], self.instructions[0]

    def task_info(self, kind: str) -> TaskInfo:
        """What a task of this corpus says of itself; its main score is the harmonic mean of both criteria."""
        return TaskInfo(f"{self.name} {kind}", "harmonic_mean", self.source, self.revision, self.licence, self.citation)


def corpus_of_rows(
    name: str, rows: Sequence[Mapping[str, Any]], criteria: Mapping[str, str], *, text_column: str = "text", **about: Any
) -> TwoCriteriaCorpus:
    """Build a corpus of rows; rows without a text or a label are left out and counted, duplicates of a text are kept once.

    Args:
        name: Name of the corpus.
        rows: Rows of a table.
        criteria: Instruction by label column, two of them.
        text_column: Column of the texts.
        **about: source, licence and citation.

    Returns:
        The corpus.

    Raises:
        InputError: When there are not two criteria, a column is missing, or a criterion has a single class.
    """
    if len(criteria) != 2:
        raise InputError(
            f"Two criteria are needed to contrast them; {len(criteria)} given. Give --criterion column=question twice."
        )
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in (text_column, *criteria):
        if column not in columns:
            known = shown_names([column for column in columns if column != "__text__"])
            raise InputError(f"No column {shown(column)} in {name}. The columns are: {known}.")
    whole: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if all(_is_given(row.get(column)) for column in (text_column, *criteria)):
            whole.setdefault(str(row[text_column]), row)
    for column in criteria:
        classes = Counter(str(row[column]) for row in whole.values())
        if len(classes) < 2:
            raise InputError(
                f"{name}: column {column!r} has {len(classes)} class(es) in {len(whole)} rows; a criterion needs two."
            )
    criteria = {column: resolve_instruction(question) for column, question in criteria.items()}
    first, second = criteria
    kept = [{key: str(row[key]) for key in (text_column, first, second)} for row in whole.values()]
    return TwoCriteriaCorpus(
        name=name,
        texts=[row[text_column] for row in kept],
        criteria=(first, second),
        labels=([row[first] for row in kept], [row[second] for row in kept]),
        instructions=(criteria[first], criteria[second]),
        revision=fingerprint(kept, [[first, criteria[first]], [second, criteria[second]]]),
        dropped=len(rows) - len(kept),
        **{"source": name, **about},
    )


def _is_given(value: Any) -> bool:
    return value is not None and value == value and str(value).strip() != ""


def known_corpus(name: str, folder: Path, limit: int | None = None) -> TwoCriteriaCorpus:
    """One of the corpora that the project measures itself on, from a local folder.

    Args:
        name: A corpus of ``sets.yaml`` that has a file.
        folder: Where the sets lie, one folder each.
        limit: At most so many rows, drawn with seed 0.

    Returns:
        The corpus.

    Raises:
        InputError: When the name is unknown or the rows cannot be read.
    """
    known = known_set("corpus", name)
    rows = [_with_single_labels(row) for row in read_rows(str(folder / str(known.file)))]
    criteria = instructions_of(name)
    whole = [row for row in rows if all(_is_given(row.get(column)) for column in criteria)]
    if limit is not None and len(whole) > limit:
        rows, name = random.Random(0).sample(whole, limit), f"{name} ({limit} rows)"
    about = {"source": str(known.file), "licence": known.licence, "citation": known.citation}
    return corpus_of_rows(name, rows, criteria, text_column=known.columns.get("text", "text"), **about)


def _with_single_labels(row: Mapping[str, Any]) -> dict[str, Any]:
    """Labels that come in lists (categories of a review): the one there is, or none where there are several."""
    single = {key: value[0] if len(value) == 1 else None for key, value in row.items() if isinstance(value, list)}
    return {**row, **single}


def nyt_of_hub() -> TwoCriteriaCorpus:
    """New York Times articles by topic and location, the InBedder authors' own set, from the hub at its pinned revision."""
    known = known_set("corpus", "NYT")
    path, revision = known.pinned
    topics, locations = (
        {row["text"]: row["cluster"] for row in read_hub(path, revision, criterion)} for criterion in ("topic", "location")
    )
    rows = [{"text": text, "topic": topics[text], "location": locations[text]} for text in topics if text in locations]
    about = {"source": f"{path}@{revision[:8]}", "licence": known.licence, "citation": known.citation}
    return corpus_of_rows("NYT", rows, instructions_of("nyt"), **about)


def corpus_of_table(
    path: str, criteria: Mapping[str, str], text_column: str | Sequence[str] | None = None, limit: int | None = None
) -> TwoCriteriaCorpus:
    """A user's own table.

    Args:
        path: A table, as ``inbedder.io.tables`` reads it.
        criteria: Instruction by label column, two of them.
        text_column: Column of the texts, or several; required if several columns contain text.
        limit: At most so many rows, drawn with seed 0.

    Returns:
        The corpus.
    """
    table, name = read_table(path, text_column, skip_bad=True), Path(path).name
    if table.skipped:
        logger.warning("%s: %d bad rows were left out.", name, table.skipped)
    rows = [{**record, "__text__": text} for record, text in zip(table.records, table.texts, strict=True)]
    if limit is not None and len(rows) > limit:
        rows, name = random.Random(0).sample(rows, limit), f"{name} ({limit} rows)"
    return corpus_of_rows(name, rows, criteria, text_column="__text__")
