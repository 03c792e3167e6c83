"""Tasks: the data, instructions and metric of each measurement."""

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
from inbedder.runtime.user_paths import expand_path
from inbedder_evaluation.tasks.conditional_sts import load_instruct_stsb, read_csts
from inbedder_evaluation.tasks.contrast_triplets import ContrastTriplets
from inbedder_evaluation.tasks.corpus import TwoCriteriaCorpus, load_corpus, load_nyt, read_corpus
from inbedder_evaluation.tasks.criteria_clustering import CriteriaClustering
from inbedder_evaluation.tasks.instruction_detail import InstructionDetail, read_detail_instructions
from inbedder_evaluation.tasks.intent_emotion import load_intent_emotion
from inbedder_evaluation.tasks.prompt_retrieval import PromptRetrieval
from inbedder_evaluation.tasks.robustness import (
    InstructionRobustness,
    LabelledTexts,
    load_robustness,
    read_authors_instructions,
    read_robustness_instructions,
)
from inbedder_evaluation.tasks.sets import KnownSet, read_sets
from inbedder_evaluation.tasks.standard import load_mteb_task, load_reranking, load_standard_task
from inbedder_evaluation.tasks.task import NothingToMeasureError, Task
from inbedder_evaluation.tasks.text_evaluation import TextEvaluation
from inbedder_evaluation.tasks.wording_means import WordingMeans

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Data:
    """The data that tasks are built from."""

    source: Path | None = None
    """A table, or a folder of known sets, which are added to the shipped ones; None for only the shipped sets."""
    hub: bool = False
    """Whether to add the papers' own sets from the hub, at pinned revisions."""
    criteria: Mapping[str, str] | None = None
    """Instruction by label column, for two columns of a table."""
    text_column: str | Sequence[str] | None = None
    """One or more text columns of a table."""
    limit: int | None = None
    """Maximum number of rows of the table, or of each set of the folder."""
    protocol: str = "k-means"
    """Clustering of corpora: "k-means", or "paper" (mini-batch k-means, one start, as in the InBedder authors' code)."""
    instructions: Path | None = None
    """File of the authors' instructions (``read_authors_instructions``); with it, ``hub`` also adds their robustness sets."""
    to_predict: bool = False
    """Whether similarities are only predicted, so that a table of C-STS may hide its labels."""
    wording: str | None = None
    """The words of text evaluation: those of INSTRUCTOR's base, large or xl; None for our question."""

    def __post_init__(self) -> None:
        for name in ("source", "instructions"):
            if (path := getattr(self, name)) is not None:
                object.__setattr__(self, name, expand_path(path))


def build_tasks(data: Data | None = None, names: Sequence[str] = ()) -> list[Task]:
    """Build the tasks that the data support.

    Args:
        data: The data; None for the shipped sets.
        names: Build only tasks whose name contains one of these, ignoring case and hyphens; empty builds all.

    Returns:
        The tasks. Tasks that the data do not support, such as contrast triplets of nested labels, are skipped with a warning.

    Raises:
        InputError: If the data do not exist, criteria are missing, or no task has such a name.
    """
    data = data or Data()
    if data.source is not None and not data.source.exists():
        raise InputError(f"There is no {data.source}. Give a table, or a folder of known sets.")
    is_table = data.source is not None and data.source.is_file()
    if data.instructions and not data.hub:
        raise InputError("The instructions are for the authors' robustness sets, which are on the hub: add --hub.")
    if data.criteria and not is_table:
        raise InputError("Criteria need a table: give its file as --data.")
    offers = dict(_of_table(data) if is_table else _list_known_offers(data))
    offer_names = [name for name in offers if not names or any(_normalize_name(part) in _normalize_name(name) for part in names)]
    if not offer_names:
        names_known = ", ".join([*offers, *(() if is_table else ["C-STS (with a table as --data)"])])
        raise InputError(f"No task is called {' or '.join(names)}. Available tasks: {names_known}.")
    tasks, reasons = [], []
    for name in offer_names:
        try:
            tasks.append(offers[name]())
        except NothingToMeasureError as error:
            reasons.append(f"{name} is skipped: {error}")
            logger.warning(reasons[-1])
    if not tasks:
        raise InputError(f"No task is left. {' '.join(reasons)}")
    if data.wording and not any(isinstance(task, TextEvaluation) for task in tasks):
        raise InputError("Only text evaluation is asked in other words: add --task texteval, or leave --wording out.")
    return tasks


def _normalize_name(name: str) -> str:
    return name.lower().replace("-", "")


Offer = tuple[str, Callable[[], Task]]


def _of_table(data: Data) -> Iterator[Offer]:
    assert data.source is not None
    path = data.source
    if data.criteria:
        corpus = read_corpus(str(path), data.criteria, data.text_column, data.limit)
        yield from _of_corpus(corpus.name, lambda: corpus, data.protocol)
        return
    head: Sequence[str] = next((list(row) for _, row in stream_rows(str(path)) if not isinstance(row, BadRow)), [])
    missing = [column for column in COLUMNS if column not in head]
    read_table = partial(read_csts, path, limit=data.limit, to_predict=data.to_predict)
    if missing == ["condition"]:
        yield f"STS {path.name}", read_table
        return
    if missing:
        raise InputError(
            f"{path} needs two criteria: give --criterion column='question?' twice. "
            f"(A table with the columns {', '.join(COLUMNS)} needs none and is measured as C-STS; "
            f"this one lacks {', '.join(missing)}.)"
        )
    yield f"C-STS {path.name}", read_table
    yield f"C-STS {path.name}, as a question", partial(read_table, as_questions=True)


def _list_known_offers(data: Data) -> Iterator[Offer]:
    """List the shipped sets, sets whose files are in the folder and, with ``hub``, sets of the hub."""
    sets = [known_set for known_set in read_sets() if _is_there(known_set, data)]
    if data.source is not None and not any(known_set.file and not known_set.shipped for known_set in sets):
        files = ", ".join(str(known_set.file) for known_set in read_sets() if known_set.file and not known_set.shipped)
        raise InputError(f"{data.source} is neither a table nor a folder with one of these files: {files}.")
    for known_set in sets:
        yield from OFFERS[known_set.kind](known_set, data)


def _is_there(known_set: KnownSet, data: Data) -> bool:
    if known_set.shipped or (data.hub and (known_set.hub or known_set.mteb)):
        return True
    return data.source is not None and known_set.file is not None and (data.source / known_set.file).is_file()


def _offer_standard(known_set: KnownSet, data: Data) -> Iterator[Offer]:
    build = load_mteb_task if known_set.mteb else partial(load_standard_task, folder=data.source, limit=data.limit)
    if known_set.mteb and known_set.file and data.source is not None and (data.source / known_set.file).is_file():
        build = partial(load_reranking, folder=data.source)
    yield f"{known_set.name} {known_set.kind}", lambda: build(known_set.kind, known_set.name)


def _offer_corpus(known_set: KnownSet, data: Data) -> Iterator[Offer]:
    folder = data.source
    build = load_nyt if known_set.hub or folder is None else lambda: load_corpus(known_set.name, folder, data.limit)
    yield from _of_corpus(known_set.name, _share(build), data.protocol, known_set.contrasts)


def _offer_conditional(known_set: KnownSet, data: Data) -> Iterator[Offer]:
    if (folder := data.source) is not None:
        read_rows = partial(read_csts, folder / str(known_set.file), limit=data.limit)
        yield f"C-STS {known_set.name}", read_rows
        yield f"C-STS {known_set.name}, as a question", partial(read_rows, as_questions=True)


def _offer_text_evaluation(known_set: KnownSet, data: Data) -> Iterator[Offer]:
    if (folder := data.source) is not None:
        yield known_set.name, lambda: TextEvaluation(known_set.name, folder, data.wording)


def _offer_prompt_retrieval(known_set: KnownSet, data: Data) -> Iterator[Offer]:
    if (folder := data.source) is not None:
        yield f"{known_set.name} prompt retrieval", lambda: PromptRetrieval(folder)


def _offer_robustness(known_set: KnownSet, data: Data) -> Iterator[Offer]:
    instructions = read_authors_instructions(data.instructions) if data.instructions else {}
    if known_set.name in instructions:
        yield f"{known_set.name} robustness", lambda: load_robustness(known_set.name, instructions[known_set.name], data.protocol)


OFFERS: dict[str, Callable[[KnownSet, Data], Iterator[Offer]]] = {
    "intent emotion": lambda known_set, _data: iter([(known_set.name, lambda: load_intent_emotion(known_set.name))]),
    "instruct sts": lambda known_set, _data: iter([(known_set.name, lambda: load_instruct_stsb(known_set.name))]),
    "corpus": _offer_corpus,
    "conditional sts": _offer_conditional,
    **dict.fromkeys(("sts", "clustering", "classification", "pairs", "reranking"), _offer_standard),
    "text evaluation": _offer_text_evaluation,
    "prompt retrieval": _offer_prompt_retrieval,
    "robustness": _offer_robustness,
    "in-context questions": lambda _known_set, _data: iter(()),
}
"""Builders of the tasks of a set, by its kind in ``sets.yaml``."""


def _of_corpus(name: str, corpus: Callable[[], TwoCriteriaCorpus], protocol: str, contrasts: bool = True) -> Iterator[Offer]:
    if contrasts:
        yield f"{name} triplets", lambda: ContrastTriplets(corpus())
    yield f"{name} two-criteria clustering", lambda: CriteriaClustering(corpus(), protocol)
    key = name.split(" ")[0].lower()
    for criterion in read_robustness_instructions().get(key, {}):
        yield f"{name} {criterion} robustness", partial(_make_robustness, corpus, criterion, protocol)
        yield f"{name} {criterion} wordings", partial(_make_wordings, corpus, criterion, protocol)
    if key in read_detail_instructions():
        yield f"{name} detail", lambda: InstructionDetail(corpus(), read_detail_instructions()[key], protocol)


def _select_criterion(corpus: TwoCriteriaCorpus, criterion: str) -> tuple[LabelledTexts, dict[str, list[str]]]:
    """Select the labels of one criterion of a corpus, and the instructions that ask for it."""
    labels = dict(zip(corpus.criteria, corpus.labels, strict=True))[criterion]
    data = LabelledTexts(f"{corpus.name} {criterion}", corpus.texts, labels, corpus.source, corpus.licence)
    return data, read_robustness_instructions()[corpus.name.split(" ")[0].lower()][criterion]


def _make_robustness(corpus: Callable[[], TwoCriteriaCorpus], criterion: str, protocol: str) -> InstructionRobustness:
    return InstructionRobustness(*_select_criterion(corpus(), criterion), protocol)


def _make_wordings(corpus: Callable[[], TwoCriteriaCorpus], criterion: str, protocol: str) -> WordingMeans:
    data, instructions = _select_criterion(corpus(), criterion)
    return WordingMeans(data, instructions["correct"], protocol)


def _share(build: Callable[[], TwoCriteriaCorpus]) -> Callable[[], TwoCriteriaCorpus]:
    """Build a corpus on first use and share it between its tasks."""
    corpora: list[TwoCriteriaCorpus] = []

    def get_corpus() -> TwoCriteriaCorpus:
        if not corpora:
            corpora.append(build())
        return corpora[0]

    return get_corpus
