"""Wordings of questions, and words for the labels that answer them: the folder ``finetune/questions``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import yaml

from inbedder.runtime.package_data import find_data_folder

QUESTIONS_FOLDER = find_data_folder("inbedder_finetune", "questions")


@dataclass(frozen=True)
class Question:
    """One question in many wordings."""

    ask: list[str]
    """The wordings."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Label of a data set -> the words that answer the question; empty where the labels are such words."""


@cache
def read_questions() -> dict[str, Question]:
    """Read all shipped questions.

    Returns:
        The questions by name.

    Example:
        >>> "emotion" in read_questions()
        True
    """
    tables = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(QUESTIONS_FOLDER.glob("*.yaml"))]
    return {name: Question(**question) for table in tables for name, question in table.items()}
