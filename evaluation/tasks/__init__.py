"""Tasks: data, instructions and metric of each measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluation.tasks.base import Task
from evaluation.tasks.contrast_triplets import ContrastTriplets
from evaluation.tasks.corpus import KNOWN, TwoCriteriaCorpus, corpus_of_table, known_corpus
from evaluation.tasks.criteria_clustering import CriteriaClustering
from evaluation.tasks.instruct_stsb import InstructSTSB
from evaluation.tasks.intent_emotion import IntentEmotion
from evaluation.tasks.robustness import InstructionRobustness, LabelledTexts, robustness_instructions
from inbedder.errors import InputError


def build_tasks(
    data: Path | None = None,
    criteria: Mapping[str, str] | None = None,
    *,
    names: Sequence[str] = (),
    text_column: str | None = None,
    limit: int | None = None,
) -> list[Task]:
    """Choose what to measure.

    Args:
        data: None for the shipped sets alone; a table to measure by its own two criteria; or a folder of known sets, which join
            the shipped ones.
        criteria: Instruction by label column, for a table.
        names: When given, only tasks whose name contains one of these, upper and lower case alike.
        text_column: Column of the texts, for a table.
        limit: At most so many rows of each corpus.

    Returns:
        The tasks.

    Raises:
        InputError: When the data are not there, criteria are missing, or no task has such a name.
    """
    if data is not None and not data.exists():
        raise InputError(f"There is no {data}. Give a table, or a folder of known sets.")
    if data is not None and data.is_file():
        if not criteria:
            raise InputError(f"{data} needs two criteria: give --criterion column='question?' twice.")
        tasks = _of_corpus(corpus_of_table(str(data), criteria, text_column))
    elif criteria:
        raise InputError("Criteria belong to a table: give its file as --data.")
    else:
        tasks = [IntentEmotion(), InstructSTSB()]
        for corpus in _known_in(data, limit) if data is not None else []:
            tasks += _of_corpus(corpus)
    chosen = [task for task in tasks if not names or any(name.lower() in task.info.name.lower() for name in names)]
    if not chosen:
        raise InputError(f"No task is called {' or '.join(names)}. There are: {', '.join(task.info.name for task in tasks)}.")
    return chosen


def _of_corpus(corpus: TwoCriteriaCorpus) -> list[Task]:
    asked = robustness_instructions().get(corpus.name.split(" ")[0], {})
    robustness = [
        InstructionRobustness(
            LabelledTexts(f"{corpus.name} {criterion}", corpus.texts, labels, corpus.source, corpus.licence), asked[criterion]
        )
        for criterion, labels in zip(corpus.criteria, corpus.labels, strict=True)
        if criterion in asked
    ]
    return [ContrastTriplets(corpus), CriteriaClustering(corpus), *robustness]


def _known_in(folder: Path, limit: int | None) -> list[TwoCriteriaCorpus]:
    found = [name for name, (file, *_) in KNOWN.items() if (folder / file).is_file()]
    if not found:
        files = ", ".join(file for file, *_ in KNOWN.values())
        raise InputError(f"{folder} is neither a table nor a folder that holds one of: {files}.")
    return [known_corpus(name, folder, limit) for name in found]
