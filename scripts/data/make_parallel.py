#!/usr/bin/env python3
"""Make training rows of the same content in several languages from XQuAD and xSID, for the recipe multilingual.

    python scripts/data/make_parallel.py DATA           (DATA/xquad_en.jsonl.gz, xquad_multilingual.jsonl.gz, xsid_...; seconds)

Writes DATA/xquad_parallel.jsonl.gz, with ``kind``:

- question: a paragraph in one language, a question about it in the same or another one, the answer in English
- topic: a paragraph, and the salient words of its English version
- language: a paragraph, and the name of its language

and DATA/parallel_texts.jsonl.gz: the texts of both sets with ``language`` and ``corpus``, from which the directions of languages
are found. Every third paragraph of XQuAD, where ``split`` is dev, and xSID's test split are for measurements.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from get_data import write_rows

from inbedder.io.tables import read_rows
from inbedder_finetune.answering.keywords import find_salient_words

Row = dict[str, Any]
SEED = 0
MIN_VERSIONS = 6
"""Of a question; others were cut to different sentences."""
TOPIC, LANGUAGE = "What is the text about?", "Which language is it?"


def read_file(folder: Path, name: str) -> list[Row]:
    """Read a data set."""
    return [dict(row) for row in read_rows(str(folder / f"{name}.jsonl.gz"))]


def read_versions(folder: Path) -> dict[str, dict[str, Row]]:
    """Read XQuAD: question -> language -> row, English included."""
    versions: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in read_file(folder, "xquad_multilingual"):
        if row["kind"] == "extractive":
            versions[row["group"]][row["domain"]] = row
    for row in read_file(folder, "xquad_en"):
        if row["id"] in versions:
            versions[row["id"]]["English"] = row
    return {question: rows for question, rows in sorted(versions.items()) if "English" in rows and len(rows) >= MIN_VERSIONS}


def make_rows(versions: dict[str, dict[str, Row]]) -> Iterator[Row]:
    """Make the rows of all kinds."""
    rng = random.Random(SEED)
    paragraphs = list(dict.fromkeys(rows["English"]["input"] for rows in versions.values()))
    keywords = dict(zip(paragraphs, find_salient_words(paragraphs, 3, "all-MiniLM-L6-v2"), strict=True))
    first_questions: dict[str, str] = {}
    for question, rows in versions.items():
        paragraph = rows["English"]["input"]
        split = "dev" if paragraphs.index(paragraph) % 3 == 2 else "train"
        for language, row in rows.items():
            asked_row = rows[language if rng.random() < 0.5 else rng.choice(list(rows))]
            shared = {"input": row["input"], "split": split, "domain": language, "group": question}
            yield shared | {
                "instruction": asked_row["instruction"],
                "output": rows["English"]["output"],
                "kind": "question",
                "id": f"{language}-{question}",
            }
            if first_questions.setdefault(paragraph, question) != question:
                continue
            for kind, instruction, answer in (("topic", TOPIC, keywords[paragraph]), ("language", LANGUAGE, language)):
                yield shared | {"instruction": instruction, "output": answer, "kind": kind, "id": f"{language}-{question}-{kind}"}


def list_texts(rows: list[Row], folder: Path) -> Iterator[Row]:
    """List the texts of both sets once."""
    for row in rows:
        if row["kind"] == "topic" and row["split"] == "train":
            yield {"input": row["input"], "language": row["domain"], "corpus": "xquad"}
    sentences = (row for row in read_file(folder, "xsid_language_intent") if row["split"] == "dev")
    texts = {(row["domain"], row["input"]): None for row in sentences}
    for language, text in texts:
        yield {"input": text, "language": language, "corpus": "xsid"}


def main(arguments: list[str]) -> None:
    """Write both files."""
    folder = Path(arguments[0])
    rows = list(make_rows(read_versions(folder)))
    write_rows(rows, folder / "xquad_parallel.jsonl.gz")
    texts = list(list_texts(rows, folder))
    write_rows(texts, folder / "parallel_texts.jsonl.gz")
    print(f"{len(rows)} rows, {len(texts)} texts in {len({text['language'] for text in texts})} languages")


if __name__ == "__main__":
    main(sys.argv[1:])
