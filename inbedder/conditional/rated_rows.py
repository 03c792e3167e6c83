"""Rows of conditional similarity: two sentences, a condition, and their similarity under it, from 1 to 5.

The columns are those of C-STS (Deshpande et al. 2023): sentence1, sentence2, condition, label. Its files are encrypted and may
not be redistributed: request the password with the form that https://github.com/princeton-nlp/c-sts links (it arrives by mail at
once), run the authors' ``extract.sh``, and set ``csts_train.csv`` and ``csts_validation.csv`` in a recipe. The test file hides
its labels (all are -1): ``inbedder evaluate --predict`` writes what its authors score. ``finetune/written`` contains rows
written for this project (CC BY 4.0), with two more columns: pair (two rows each, one rated higher and one lower) and split
(train, validation or test; a pair is in one of them).

The same two sentences in either order are the same pair. The re-annotated training split (EMNLP 2025,
https://github.com/LivNLP/CSTS-reannotation) has such rows, and pairs with two equal ratings; all of them are read.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inbedder.errors import InputError, format_names, format_value
from inbedder.io.cell_values import is_blank
from inbedder.io.columns import explain_missing_text
from inbedder.io.formats import BadRow
from inbedder.io.tables import stream_rows

logger = logging.getLogger(__name__)

TEXT_COLUMNS = ("sentence1", "sentence2", "condition")
COLUMNS = (*TEXT_COLUMNS, "label")
MIN_RATING, MAX_RATING = 1.0, 5.0
"""The scale of ratings."""
REPAIR_ADVICE = "Correct or delete the row (a recipe leaves such rows out with data.skip_bad=true)."


@dataclass(frozen=True)
class RatedPair:
    """Two sentences, a condition and a rating."""

    sentence1: str
    """The first sentence."""
    sentence2: str
    """The second sentence."""
    condition: str
    """The aspect in which the sentences are compared."""
    label: float
    """Similarity in that aspect (``get_scale``); NaN if the file hides it."""
    pair: str
    """The identity of the two sentences: the column ``pair``, or the sentences themselves in a fixed order."""
    row: int
    """Row number in the file, from 1, without the header."""


def read_rated_pairs(
    path: Path | str,
    split: str | None = None,
    *,
    skip_bad: bool = False,
    may_hide_labels: bool = False,
    needs_condition: bool = True,
) -> list[RatedPair]:
    """Read rated rows.

    Args:
        path: A .csv, .tsv, .jsonl or .parquet file with the columns sentence1, sentence2, condition and label.
        split: If the file has a column ``split``, read only rows of this split; None reads all.
        skip_bad: Leave out rows without a text or a rating on the scale, instead of raising an error at the first.
        may_hide_labels: Accept a file whose labels are all -1, such as the test file of C-STS.
        needs_condition: Whether to reject a file without a column condition, such as STS-B. Its conditions are "", and its
            ratings are from 0 to 5.

    Returns:
        The rows.

    Raises:
        InputError: If a column is missing, a cell is empty (NaN), a rating is missing or outside the scale, or all ratings
            are hidden; the message names file, row and column.
    """
    records: list[tuple[int, Any]] = list(stream_rows(str(path)))
    columns = list(dict.fromkeys(name for _, record in records if not isinstance(record, BadRow) for name in record))
    has_conditions = "condition" in columns or needs_condition
    missing = [column for column in COLUMNS if column not in columns and (has_conditions or column != "condition")]
    if missing:
        raise InputError(
            f"{path} lacks the column {', '.join(missing)}; it has {format_names(columns) or 'no rows'}. "
            f"Conditional similarity needs {', '.join(COLUMNS)}."
        )
    if split is not None and "split" in columns:
        records = _select_split(path, records, split)
    is_hidden = all(not isinstance(record, BadRow) and _is_label_hidden(record) for _, record in records)
    if is_hidden and not may_hide_labels:
        raise InputError(
            f"{path} hides its labels (all are -1), as the test file of C-STS does. Use the validation file, or write "
            "predictions for its authors: inbedder evaluate --task csts --predict predictions.json"
        )
    text_columns = TEXT_COLUMNS if has_conditions else TEXT_COLUMNS[:2]
    scale = None if is_hidden else get_scale(has_conditions=has_conditions)
    reasons = [_explain_bad_row(record, text_columns, scale) for _, record in records]
    bad_rows = [(number, reason) for (number, _), reason in zip(records, reasons, strict=True) if reason]
    if bad_rows and not skip_bad:
        raise InputError(f"{path}: row {bad_rows[0][0]} {bad_rows[0][1]}. {REPAIR_ADVICE}")
    if bad_rows:
        logger.warning("%s: %d bad rows were left out.", path, len(bad_rows))
    return [_parse_row(number, record) for (number, record), reason in zip(records, reasons, strict=True) if not reason]


def get_scale(*, has_conditions: bool) -> tuple[float, float]:
    """Return the lowest and the highest rating: 1 and 5 of C-STS, or 0 and 5 of STS-B, which has no conditions."""
    return (MIN_RATING, MAX_RATING) if has_conditions else (0.0, MAX_RATING)


def _is_label_hidden(record: Mapping[str, Any]) -> bool:
    return str(record.get("label")).strip() in ("-1", "-1.0")


def _select_split(path: Path | str, records: Sequence[tuple[int, Any]], split: str) -> list[tuple[int, Any]]:
    selected = [(number, record) for number, record in records if isinstance(record, BadRow) or record.get("split") == split]
    if not selected:
        splits = format_names(list(dict.fromkeys(record.get("split") for _, record in records)))
        raise InputError(f"{path} has no row of the split {split!r}, only of {splits}. Rename one in the column split.")
    return selected


def _explain_bad_row(
    record: Mapping[str, Any] | BadRow, text_columns: Sequence[str], scale: tuple[float, float] | None
) -> str | None:
    if isinstance(record, BadRow):
        return f"cannot be read: {str(record).removesuffix('.')}"
    for column in text_columns:
        reason = explain_missing_text(record.get(column))
        if reason:
            return f"has no text in column {column!r} (it {reason})"
    if scale is None:
        return None
    try:
        label = float(record["label"])
    except (TypeError, ValueError, KeyError):
        label = float("nan")
    if math.isnan(label):
        return f"has {format_value(record.get('label'))} in column 'label', not a rating"
    low, high = scale
    return None if low <= label <= high else f"has the rating {label:g} in column 'label', outside {low:g} to {high:g}"


def _parse_row(number: int, record: Mapping[str, Any]) -> RatedPair:
    first, second, condition = (str(record.get(column, "")).strip() for column in TEXT_COLUMNS)
    label = math.nan if _is_label_hidden(record) else float(record["label"])
    pair = record.get("pair")
    name = " / ".join(map(repr, sorted((first, second)))) if is_blank(pair) else str(pair)
    return RatedPair(first, second, condition, label, name, number)


def group_by_pair(rows: Sequence[RatedPair]) -> dict[str, list[int]]:
    """Group row indices by their two sentences, in either order, the highest rating first; reject a ``pair`` of others."""
    indices_by_pair: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        first = rows[indices_by_pair[row.pair][0]] if row.pair in indices_by_pair else row
        if {first.sentence1, first.sentence2} != {row.sentence1, row.sentence2}:
            raise InputError(
                f"Rows {first.row} and {row.row} are of pair {row.pair} but have different sentences. Name them as two pairs."
            )
        indices_by_pair[row.pair].append(index)
    return {pair: sorted(indices, key=lambda index: -rows[index].label) for pair, indices in indices_by_pair.items()}


def is_ordered(rows: Sequence[RatedPair]) -> bool:
    """Return whether a pair has exactly two rows, of different ratings, which Quad and few-shot examples need."""
    return len(rows) == 2 and rows[0].label != rows[1].label


def select_contrasting(rows: Sequence[RatedPair]) -> list[RatedPair]:
    """Select the rows of the pairs that have an order (``is_ordered``), pair by pair, with the higher rating first."""
    pairs = [[rows[index] for index in indices] for indices in group_by_pair(rows).values()]
    return [row for pair_rows in pairs if is_ordered(pair_rows) for row in pair_rows]
