"""Long documents in parts: each part is grouped by itself, and a document has a share of each group."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import check_integer
from inbedder.errors import InputError, format_value, import_extra
from inbedder.grouping.grouped_texts import GroupedTexts, make_column_suffixes
from inbedder.prompting.templates import check_texts
from inbedder.prompting.tokenization import clean_text
from inbedder.vectors.vectors import Labels

PARAGRAPH = re.compile(r"\n[ \t\r\f\v]*\n\s*")
QUOTES = re.compile(r"(?<!\w)['`´‘’]|['`´‘’](?!\w)|[\"“”„«»()\[\]{}]")
"""Quotes and brackets, but no apostrophe inside a word."""
MAX_SENTENCE_CHARACTERS = 500
"""Maximum length of a sentence in which quotes and brackets are trusted: one that is never closed hides all sentence ends."""
MIN_SHOWN_SHARE = 0.05
"""Minimum share of a group that is named among a document's groups."""


@dataclass(frozen=True, eq=False)
class DocumentParts:
    """The parts of n documents."""

    texts: list[str]
    """m parts, in the order of the documents. Each has a letter or digit, except that a document without any is one part."""
    documents: Labels
    """Document of each part, int64, shape (m,), 0 .. n-1."""

    def measure_shares(self, labels: Labels, count: int) -> NDArray[np.float64]:
        """Measure the share of each group in each document.

        Args:
            labels: Group of each part, shape (m,), 0 .. count-1.
            count: Number of groups.

        Returns:
            float64, shape (n, count): the share of the document's characters that are in parts of the group; each row sums to 1.
        """
        shares = np.zeros((int(self.documents.max()) + 1, count))
        np.add.at(shares, (self.documents, labels), [max(len(text), 1) for text in self.texts])
        normalized: NDArray[np.float64] = shares / shares.sum(axis=1, keepdims=True)
        return normalized


def split_documents(texts: Sequence[str], unit: str | int) -> DocumentParts:
    """Split documents into parts.

    Args:
        texts: n documents.
        unit: "paragraph" (split at blank lines), "sentence" (English rules), or a number of words per part.

    Returns:
        The parts.

    Raises:
        InputError: If the unit is unknown.
        MissingExtraError: If sentences are asked for and sentencex is not installed.

    Example:
        >>> from inbedder.grouping.document_parts import split_documents
        >>> parts = split_documents(["The food was cold. The waiter was kind.", "Too loud."], 4)
        >>> parts.texts, parts.documents.tolist()
        (['The food was cold.', 'The waiter was kind.', 'Too loud.'], [0, 0, 1])
    """
    rows = check_texts(texts, None)[0]
    if unit == "paragraph" and rows and not any(PARAGRAPH.search(text.strip()) for text in rows):
        warnings.warn(
            "No text has a blank line, so each is one part. Split by sentence or by a number of words, such as 60.", stacklevel=2
        )
    lists = [_split_text(text, unit) or [text] for text in rows]
    counts = [len(parts) for parts in lists]
    return DocumentParts([part for parts in lists for part in parts], np.repeat(np.arange(len(rows)), counts))


def parse_unit(value: str) -> str | int:
    """Parse the unit of a command line.

    Args:
        value: "paragraph", "sentence" or a number.

    Returns:
        The unit.

    Raises:
        InputError: If the unit is unknown.
    """
    if value in ("paragraph", "sentence"):
        return value
    if not value.isdecimal() or int(value) < 1:
        raise InputError(f"{format_value(value)} is not a unit. Give paragraph, sentence or a number of words.")
    return int(value)


def describe_shares(shares: NDArray[np.float64], names: Sequence[str]) -> list[str]:
    """Describe the groups of each document.

    Args:
        shares: Result of ``measure_shares``, shape (n, k).
        names: Names of the k groups.

    Returns:
        n lines such as "late delivery 60%; price 40%", the largest share first.
    """
    order = np.argsort(-shares, axis=1, kind="stable")
    return [
        "; ".join(f"{names[number]} {row[number]:.0%}" for number in numbers if row[number] >= MIN_SHOWN_SHARE)
        for row, numbers in zip(shares, order.tolist(), strict=True)
    ]


def make_document_columns(results: Sequence[GroupedTexts], parts: DocumentParts) -> dict[str, list[Any]]:
    """Make the table columns of groupings of parts.

    Args:
        results: Groupings of the m parts.
        parts: The parts of n documents.

    Returns:
        "group" (from 1), "group_name" and "groups", n values each: the group with the largest share of the document, and all its
        groups with their shares. With several groupings the question follows each name.
    """
    columns: dict[str, list[Any]] = {}
    for result, suffix in zip(results, make_column_suffixes(results), strict=True):
        shares = parts.measure_shares(result.labels, len(result.names))
        main_groups = shares.argmax(axis=1).tolist()
        columns[f"group{suffix}"] = [None if number == result.left_out else number + 1 for number in main_groups]
        columns[f"group_name{suffix}"] = [result.names[number] for number in main_groups]
        columns[f"groups{suffix}"] = describe_shares(shares, result.names)
    return columns


def _split_text(text: str, unit: str | int) -> list[str]:
    """Split one document into its parts without surrounding space; parts without a letter or digit join their neighbour."""
    if unit == "paragraph":
        parts = PARAGRAPH.split(text)
    elif unit == "sentence":
        parts = _split_sentences(text)
    else:
        words = text.split()
        size = check_integer("unit", unit, 1)
        parts = [" ".join(words[start : start + size]) for start in range(0, len(words), size)]
    joined_parts: list[str] = []
    for part in filter(None, map(str.strip, parts)):
        if joined_parts and not (_has_words(part) and _has_words(joined_parts[-1])):
            joined_parts[-1] += f" {part}"
        else:
            joined_parts.append(part)
    return joined_parts


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def _split_sentences(text: str) -> list[str]:
    segment = import_extra("sentencex", "report").segment
    sentences: list[str] = []
    for sentence in segment("en", clean_text(text)):
        if len(sentence) <= MAX_SENTENCE_CHARACTERS:
            sentences.append(sentence)
            continue
        start = 0
        for part in segment("en", QUOTES.sub(" ", sentence)):  # as long as the sentence, with the same positions
            sentences.append(sentence[start : start + len(part)])
            start += len(part)
    return sentences
