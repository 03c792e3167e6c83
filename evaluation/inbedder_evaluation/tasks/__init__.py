"""Tasks: data, instructions and metric of each measurement."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from inbedder.conditional.rated_rows import COLUMNS
from inbedder.errors import InputError
from inbedder.io.formats import BadRow
from inbedder.io.tables import stream_rows
from inbedder_evaluation.tasks.conditional_sts import csts_of_table, instruct_stsb
from inbedder_evaluation.tasks.contrast_triplets import ContrastTriplets
from inbedder_evaluation.tasks.corpus import TwoCriteriaCorpus, corpus_of_table, known_corpus, nyt_of_hub
from inbedder_evaluation.tasks.criteria_clustering import CriteriaClustering
from inbedder_evaluation.tasks.instruction_detail import InstructionDetail, detail_instructions
from inbedder_evaluation.tasks.intent_emotion import intent_emotion
from inbedder_evaluation.tasks.prompt_retrieval import PromptRetrieval
from inbedder_evaluation.tasks.robustness import (
    InstructionRobustness,
    LabelledTexts,
    authors_instructions,
    robustness_instructions,
    robustness_of_hub,
)
from inbedder_evaluation.tasks.sets import KnownSet, known_sets
from inbedder_evaluation.tasks.standard import reranking_of_file, standard_task, task_of_mteb
from inbedder_evaluation.tasks.task import NothingToMeasureError, Task
from inbedder_evaluation.tasks.text_evaluation import TextEvaluation
from inbedder_evaluation.tasks.wording_means import WordingMeans

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Data:
    """What is measured on."""

    source: Path | None = None
    """None for the shipped sets alone; a table; or a folder of known sets, which join the shipped ones."""
    hub: bool = False
    """Add the papers' own sets from the hub, at pinned revisions."""
    criteria: Mapping[str, str] | None = None
    """Instruction by label column, two of them, for a table."""
    text_column: str | Sequence[str] | None = None
    """Column of the texts, or several, for a table."""
    limit: int | None = None
    """At most so many rows of the table, or of each set of the folder."""
    protocol: str = "k-means"
    """How corpora are clustered: "k-means", or "paper" (mini-batch k-means, one start, as the InBedder authors do)."""
    instructions: Path | None = None
    """The authors' instructions (``authors_instructions``), with which ``hub`` also adds their robustness sets."""


def build_tasks(data: Data | None = None, names: Sequence[str] = ()) -> list[Task]:
    """Choose what to measure.

    Args:
        data: The shipped sets, a table, a folder, the hub.
        names: When given, only tasks whose name contains one of these, whatever their case and hyphens; others are not even read.

    Returns:
        The tasks; those that the data do not allow, such as contrast triplets of nested labels, are left out with a warning.

    Raises:
        InputError: When the data are not there, criteria are missing, or no task has such a name.
    """
    data = data or Data()
    if data.source is not None and not data.source.exists():
        raise InputError(f"There is no {data.source}. Give a table, or a folder of known sets.")
    is_table = data.source is not None and data.source.is_file()
    if data.instructions and not data.hub:
        raise InputError("Instructions are those of the authors' robustness sets, which are on the hub: add --hub.")
    if data.criteria and not is_table:
        raise InputError("Criteria belong to a table: give its file as --data.")
    offered = dict(_of_table(data) if is_table else _known(data))
    chosen = [name for name in offered if not names or any(_plain(part) in _plain(name) for part in names)]
    if not chosen:
        known = ", ".join([*offered, *(() if is_table else ["C-STS, of a table given as --data"])])
        raise InputError(f"No task is called {' or '.join(names)}. There are: {known}.")
    tasks, reasons = [], []
    for name in chosen:
        try:
            tasks.append(offered[name]())
        except NothingToMeasureError as error:
            reasons.append(f"{name} is skipped: {error}")
            logger.warning(reasons[-1])
    if not tasks:
        raise InputError(f"No task is left. {' '.join(reasons)}")
    return tasks


def _plain(name: str) -> str:
    return name.lower().replace("-", "")


Offer = tuple[str, Callable[[], Task]]


def _of_table(data: Data) -> Iterator[Offer]:
    assert data.source is not None
    path = data.source
    if data.criteria:
        corpus = corpus_of_table(str(path), data.criteria, data.text_column, data.limit)
        yield from _of_corpus(corpus.name, lambda: corpus, data.protocol)
        return
    head: Sequence[str] = next((list(row) for _, row in stream_rows(str(path)) if not isinstance(row, BadRow)), [])
    missing = [column for column in COLUMNS if column not in head]
    if missing:
        raise InputError(
            f"{path} needs two criteria: give --criterion column='question?' twice. "
            f"(A table with the columns {', '.join(COLUMNS)} is measured as C-STS without any; this lacks {', '.join(missing)}.)"
        )
    yield f"C-STS {path.name}", lambda: csts_of_table(path, limit=data.limit)
    yield f"C-STS {path.name}, as a question", lambda: csts_of_table(path, as_questions=True, limit=data.limit)


def _known(data: Data) -> Iterator[Offer]:
    """The shipped sets, those whose files lie in the folder, and those of the hub, if asked for."""
    found = [known for known in known_sets() if _is_there(known, data)]
    if data.source is not None and not any(known.file and not known.shipped for known in found):
        files = ", ".join(str(known.file) for known in known_sets() if known.file and not known.shipped)
        raise InputError(f"{data.source} is neither a table nor a folder that holds one of: {files}.")
    for known in found:
        yield from OFFERS[known.kind](known, data)


def _is_there(known: KnownSet, data: Data) -> bool:
    if known.shipped or (data.hub and (known.hub or known.mteb)):
        return True
    return data.source is not None and known.file is not None and (data.source / known.file).is_file()


def _standard(known: KnownSet, data: Data) -> Iterator[Offer]:
    build = task_of_mteb if known.mteb else partial(standard_task, folder=data.source, limit=data.limit)
    if known.mteb and known.file and data.source is not None and (data.source / known.file).is_file():
        build = partial(reranking_of_file, folder=data.source)
    yield f"{known.name} {known.kind}", lambda: build(known.kind, known.name)


def _corpus(known: KnownSet, data: Data) -> Iterator[Offer]:
    folder = data.source
    build = nyt_of_hub if known.hub or folder is None else lambda: known_corpus(known.name, folder, data.limit)
    yield from _of_corpus(known.name, _once(build), data.protocol, known.contrasts)


def _text_evaluation(known: KnownSet, data: Data) -> Iterator[Offer]:
    if (folder := data.source) is not None:
        yield known.name, lambda: TextEvaluation(known.name, folder)


def _prompt_retrieval(known: KnownSet, data: Data) -> Iterator[Offer]:
    if (folder := data.source) is not None:
        yield f"{known.name} prompt retrieval", lambda: PromptRetrieval(folder)


def _hub_robustness(known: KnownSet, data: Data) -> Iterator[Offer]:
    instructions = authors_instructions(data.instructions) if data.instructions else {}
    if known.name in instructions:
        yield f"{known.name} robustness", lambda: robustness_of_hub(known.name, instructions[known.name], data.protocol)


OFFERS: dict[str, Callable[[KnownSet, Data], Iterator[Offer]]] = {
    "intent emotion": lambda known, _data: iter([(known.name, lambda: intent_emotion(known.name))]),
    "instruct sts": lambda known, _data: iter([(known.name, lambda: instruct_stsb(known.name))]),
    "corpus": _corpus,
    **dict.fromkeys(("sts", "clustering", "classification", "pairs", "reranking"), _standard),
    "text evaluation": _text_evaluation,
    "prompt retrieval": _prompt_retrieval,
    "robustness": _hub_robustness,
}
"""Kind of ``sets.yaml`` -> the tasks that measure on such a set."""


def _of_corpus(name: str, corpus: Callable[[], TwoCriteriaCorpus], protocol: str, contrasts: bool = True) -> Iterator[Offer]:
    if contrasts:
        yield f"{name} triplets", lambda: ContrastTriplets(corpus())
    yield f"{name} two-criteria clustering", lambda: CriteriaClustering(corpus(), protocol)
    key = name.split(" ")[0].lower()
    for criterion in robustness_instructions().get(key, {}):
        yield f"{name} {criterion} robustness", partial(_robustness, corpus, criterion, protocol)
        yield f"{name} {criterion} wordings", partial(_wordings, corpus, criterion, protocol)
    if key in detail_instructions():
        yield f"{name} detail", lambda: InstructionDetail(corpus(), detail_instructions()[key], protocol)


def _asked(corpus: TwoCriteriaCorpus, criterion: str) -> tuple[LabelledTexts, dict[str, list[str]]]:
    """A corpus with the labels of one criterion, and the instructions that ask for it."""
    labels = dict(zip(corpus.criteria, corpus.labels, strict=True))[criterion]
    data = LabelledTexts(f"{corpus.name} {criterion}", corpus.texts, labels, corpus.source, corpus.licence)
    return data, robustness_instructions()[corpus.name.split(" ")[0].lower()][criterion]


def _robustness(corpus: Callable[[], TwoCriteriaCorpus], criterion: str, protocol: str) -> InstructionRobustness:
    return InstructionRobustness(*_asked(corpus(), criterion), protocol)


def _wordings(corpus: Callable[[], TwoCriteriaCorpus], criterion: str, protocol: str) -> WordingMeans:
    data, instructions = _asked(corpus(), criterion)
    return WordingMeans(data, instructions["correct"], protocol)


def _once(build: Callable[[], TwoCriteriaCorpus]) -> Callable[[], TwoCriteriaCorpus]:
    """Build a corpus when it is first asked for, and share it between its tasks."""
    built: list[TwoCriteriaCorpus] = []

    def corpus() -> TwoCriteriaCorpus:
        if not built:
            built.append(build())
        return built[0]

    return corpus
