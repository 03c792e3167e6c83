"""Corpora with two label columns, the data of contrast triplets and two-criteria clustering."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inbedder.errors import InputError, format_names, format_value
from inbedder.io.tables import read_rows, read_table
from inbedder.prompting.templates import resolve_instruction
from inbedder_evaluation.tasks.sets import find_set
from inbedder_evaluation.tasks.task import TaskInfo, fingerprint, read_hub, read_instructions

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
    """The instruction for each criterion."""
    source: str
    """Where the rows come from."""
    revision: str
    """Hash of the rows."""
    licence: str = "the user's own"
    """Licence of the data."""
    citation: str = ""
    """Authors of the data."""
    dropped: int = 0
    """Number of rows left out: those without a text or label, and duplicates."""

    def get_first_input(self) -> tuple[str, str]:
        """Return the first text and the first criterion's instruction."""
        return self.texts[0], self.instructions[0]

    def make_task_info(self, kind: str) -> TaskInfo:
        """Make the info of a task on this corpus; its main score is the harmonic mean of both criteria."""
        return TaskInfo(f"{self.name} {kind}", "harmonic_mean", self.source, self.revision, self.licence, self.citation)


def make_corpus(
    name: str, rows: Sequence[Mapping[str, Any]], criteria: Mapping[str, str], *, text_column: str = "text", **provenance: Any
) -> TwoCriteriaCorpus:
    """Build a corpus from rows, without duplicate texts and rows that lack a text or label.

    Args:
        name: Name of the corpus.
        rows: Rows of a table.
        criteria: Instruction by label column, for two columns.
        text_column: Column of the texts.
        **provenance: source, licence and citation.

    Returns:
        The corpus.

    Raises:
        InputError: If there are not two criteria, a column is missing, or a criterion has a single class.
    """
    if len(criteria) != 2:
        raise InputError(f"Two criteria are needed; {len(criteria)} given. Give --criterion column=question twice.")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in (text_column, *criteria):
        if column not in columns:
            columns_shown = format_names([column for column in columns if column != "__text__"])
            raise InputError(f"No column {format_value(column)} in {name}. The columns are: {columns_shown}.")
    complete_rows: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if all(_is_given(row.get(column)) for column in (text_column, *criteria)):
            complete_rows.setdefault(str(row[text_column]), row)
    for column in criteria:
        classes = Counter(str(row[column]) for row in complete_rows.values())
        if len(classes) < 2:
            raise InputError(
                f"{name}: column {column!r} has {len(classes)} class(es) in {len(complete_rows)} rows; a criterion needs two."
            )
    criteria = {column: resolve_instruction(question) for column, question in criteria.items()}
    first, second = criteria
    distinct_rows = [{key: str(row[key]) for key in (text_column, first, second)} for row in complete_rows.values()]
    return TwoCriteriaCorpus(
        name=name,
        texts=[row[text_column] for row in distinct_rows],
        criteria=(first, second),
        labels=([row[first] for row in distinct_rows], [row[second] for row in distinct_rows]),
        instructions=(criteria[first], criteria[second]),
        revision=fingerprint(distinct_rows, [[first, criteria[first]], [second, criteria[second]]]),
        dropped=len(rows) - len(distinct_rows),
        **{"source": name, **provenance},
    )


def _is_given(value: Any) -> bool:
    return value is not None and value == value and str(value).strip() != ""


def load_corpus(name: str, folder: Path, limit: int | None = None) -> TwoCriteriaCorpus:
    """Load one of the known corpora from a local folder.

    Args:
        name: A corpus of ``sets.yaml`` that has a file.
        folder: Folder of the sets, with one subfolder each.
        limit: Maximum number of rows, sampled with seed 0.

    Returns:
        The corpus.

    Raises:
        InputError: If the name is unknown or the rows cannot be read.
    """
    known_set = find_set("corpus", name)
    rows = [_with_single_labels(row) for row in read_rows(str(folder / str(known_set.file)))]
    criteria = read_instructions(name)
    complete_rows = [row for row in rows if all(_is_given(row.get(column)) for column in criteria)]
    if limit is not None and len(complete_rows) > limit:
        rows, name = random.Random(0).sample(complete_rows, limit), f"{name} ({limit} rows)"
    provenance = {"source": str(known_set.file), "licence": known_set.licence, "citation": known_set.citation}
    return make_corpus(name, rows, criteria, text_column=known_set.columns.get("text", "text"), **provenance)


def _with_single_labels(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replace list labels (categories of a review) by their only item, or by None when there are several."""
    single = {key: value[0] if len(value) == 1 else None for key, value in row.items() if isinstance(value, list)}
    return {**row, **single}


def load_nyt() -> TwoCriteriaCorpus:
    """Load the InBedder authors' New York Times articles by topic and location, from the hub at the pinned revision."""
    known_set = find_set("corpus", "NYT")
    path, revision = known_set.pinned
    topics, locations = (
        {row["text"]: row["cluster"] for row in read_hub(path, revision, criterion)} for criterion in ("topic", "location")
    )
    rows = [{"text": text, "topic": topics[text], "location": locations[text]} for text in topics if text in locations]
    provenance = {"source": f"{path}@{revision[:8]}", "licence": known_set.licence, "citation": known_set.citation}
    return make_corpus("NYT", rows, read_instructions("nyt"), **provenance)


def read_corpus(
    path: str, criteria: Mapping[str, str], text_column: str | Sequence[str] | None = None, limit: int | None = None
) -> TwoCriteriaCorpus:
    """Read a corpus from the user's table.

    Args:
        path: A table in any format of ``inbedder.io.tables``.
        criteria: Instruction by label column, for two columns.
        text_column: One or more text columns; required if several columns contain text.
        limit: Maximum number of rows, sampled with seed 0.

    Returns:
        The corpus.
    """
    table, name = read_table(path, text_column, skip_bad=True), Path(path).name
    if table.skipped:
        logger.warning("%s: %d bad rows were left out.", name, table.skipped)
    rows = [{**record, "__text__": text} for record, text in zip(table.records, table.texts, strict=True)]
    if limit is not None and len(rows) > limit:
        rows, name = random.Random(0).sample(rows, limit), f"{name} ({limit} rows)"
    return make_corpus(name, rows, criteria, text_column="__text__")
