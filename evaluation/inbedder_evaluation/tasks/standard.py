"""Standard tasks, measured by mteb's own classes: STS, clustering, classification probe, pair classification, reranking.

``sets.yaml`` names the sets; reranking sets and 20 Newsgroups come from the hub through mteb's own tasks. An embedder encodes all
texts of a set once, under the set's instruction (``prompts/evaluation.yaml``), and mteb's evaluators use these vectors.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbedder.errors import InputError
from inbedder.io.tables import read_rows
from inbedder.vectors.vectors import compute_row_cosines
from inbedder_evaluation.item_results import Outcomes, number_names
from inbedder_evaluation.tasks.sets import KnownSet, find_set
from inbedder_evaluation.tasks.task import Encode, Rows, Scores, TaskInfo, fingerprint, read_hub, read_instructions

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask

MAIN_SCORES = {"sts": "cosine_spearman", "clustering": "v_measure", "classification": "accuracy", "pairs": "cosine_ap"}
COLUMNS = {
    "sts": {"sentence1": "sentence1", "sentence2": "sentence2", "score": "score"},
    "classification": {"text": "text", "label": "label"},
}
TEXTS = {"sts": ("sentence1", "sentence2"), "clustering": ("sentences",), "classification": ("text",)}
TEXTS["pairs"] = TEXTS["sts"]
PAIRED = {"cosine_spearman": ("spearman", "score", "rating"), "cosine_ap": ("average_precision", "labels", "label")}
"""By main score of sentence-pair tasks: the name in ``STATISTICS``, mteb's column, and the column of ``Outcomes``."""


class StandardTask:
    """A task of mteb under one instruction."""

    def __init__(self, task: AbsTask, instruction: str, info: TaskInfo) -> None:
        """Wrap a task of mteb.

        Args:
            task: The task; data that are not loaded come from the hub.
            instruction: The instruction for all texts.
            info: Name and provenance of the task.
        """
        self.task = task
        self.instruction = instruction
        self.info = info
        self.seeded = task.metadata.type == "Clustering"

    def get_first_input(self) -> tuple[str, str]:
        """Return the first text and the instruction."""
        texts = self.list_texts()
        return texts[0] if texts else "", self.instruction

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Compute the scores of mteb's evaluator.

        Args:
            encode: Turns texts and an instruction into vectors.
            seed: Seed of k-means.

        Returns:
            All scores that are single numbers, times 100.

        Raises:
            InputError: If the hub cannot be reached.
        """
        return self.evaluate_items(encode, seed).scores

    def evaluate_items(self, encode: Encode, seed: int = 0) -> Outcomes:
        """Compute the scores of mteb's evaluator and, for sentence pairs, the cosine and the rating or label of each pair."""
        from sklearn.exceptions import UndefinedMetricWarning

        from inbedder_evaluation.mteb_adapters import FunctionEncoder

        self._load()
        encoder = FunctionEncoder(lambda texts: encode(texts, self.instruction))
        encoder.remember(self.list_texts())
        self.task.seed = seed if self.seeded else 42
        split = self.task.metadata.eval_splits[0]
        seeds = {"seed": seed} if self.seeded else {}
        with warnings.catch_warnings():  # of classes that a small sample never predicts
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            scores = self.task.evaluate(encoder, split, encode_kwargs={"batch_size": 64}, **seeds)["default"]
        numbers = {name: 100 * float(score) for name, score in scores.items() if isinstance(score, (int, float))}
        if self.info.main_score not in PAIRED:
            return Outcomes(numbers)
        statistic, rating, column = PAIRED[self.info.main_score]
        rows = self.task.dataset[split]
        first, second = (list(rows[side]) for side in TEXTS["pairs"])
        cosines = compute_row_cosines(encoder.get_vectors(first), encoder.get_vectors(second))
        columns = {"cosine": cosines.tolist(), column: [float(value) for value in rows[rating]]}
        units = number_names([tuple(sorted(pair)) for pair in zip(first, second, strict=True)])
        return Outcomes(numbers, statistic, units, columns)

    def _load(self) -> None:
        if self.task.data_loaded:
            return
        try:
            self.task.load_data()
        except Exception as error:
            name = self.task.metadata.dataset["path"]
            raise InputError(
                f"Cannot read {name} from the hub ({type(error).__name__}: {error}). This task needs a network."
            ) from error

    def list_texts(self) -> list[str]:
        """List all texts of loaded data, so that one call encodes (and centres) them together."""
        if not self.task.data_loaded:
            return []
        kind = next((kind for kind, score in MAIN_SCORES.items() if score == self.info.main_score), None)
        if kind is None:  # reranking, where mteb prepends titles to texts
            data: Any = self.task.dataset["default"][self.task.metadata.eval_splits[0]]
            documents = [f"{row.get('title') or ''} {row['text']}".strip() for row in data["corpus"]]
            return list(dict.fromkeys([*data["queries"]["text"], *documents]))
        texts = [text for split in self.task.dataset.values() for column in TEXTS[kind] for text in split[column]]
        if kind == "clustering":  # a list of texts per set
            texts = [text for group in texts for text in group]
        return list(dict.fromkeys(texts))


def load_standard_task(
    kind: str, name: str, folder: Path | None = None, limit: int | None = None, instruction: str | None = None
) -> StandardTask:
    """Load a standard set from a local folder, or from the hub at its pinned revision.

    Args:
        kind: sts, clustering, classification or pairs.
        name: A name of this kind in ``sets.yaml``.
        folder: Folder of the sets that have a file, with one subfolder each.
        limit: Maximum number of rows per split of a file, sampled with seed 0.
        instruction: The instruction; None for the one in ``prompts/evaluation.yaml``.

    Returns:
        The task.
    """
    known_set = find_set(kind, name)
    instruction = read_instructions("standard")[name.split(" ")[0]] if instruction is None else instruction
    sample = ""
    if known_set.hub:
        source, commit = known_set.pinned
        splits = {"test": _select_rows(known_set, read_hub(source, commit))}
        revision = f"{commit} {fingerprint([], instruction)[:8]}"
    else:
        assert folder is not None
        source, files = str(known_set.file), {"test": known_set.file, "train": known_set.train}
        splits = {split: _select_rows(known_set, read_rows(str(folder / file)), limit) for split, file in files.items() if file}
        revision = fingerprint([], [splits, instruction])
        sample = f" ({limit} rows)" if limit is not None and len(splits["test"]) == limit else ""
    title = f"{name}{sample} {'STS' if kind == 'sts' else kind}"
    info = TaskInfo(title, MAIN_SCORES[kind], source, revision, known_set.licence, known_set.citation, quoted=known_set.quoted)
    return StandardTask(make_local_task(kind, splits, info, instruction), instruction, info)


def _select_rows(known_set: KnownSet, rows: Rows, limit: int | None = None) -> Rows:
    """Select the columns of the task; rows that lack a value are left out."""
    columns = known_set.columns or COLUMNS[known_set.kind]
    rows = [{new: row.get(old) for new, old in columns.items()} for row in rows]
    rows = [row for row in rows if all(value is not None and value != "" for value in row.values())]
    return random.Random(0).sample(rows, limit) if limit is not None and len(rows) > limit else rows


def make_local_task(kind: str, splits: Mapping[str, Rows], info: TaskInfo, instruction: str) -> AbsTask:
    """Make a task of mteb's classes on local rows.

    Args:
        kind: sts, clustering, classification or pairs.
        splits: Rows by split; a classification without "train" is cross-validated.
        info: Name and provenance of the task.
        instruction: The task's prompt.

    Returns:
        A task whose data are loaded.

    Raises:
        InputError: If there is a single class, or no class has two texts.
    """
    if kind in ("clustering", "classification"):
        label = "labels" if kind == "clustering" else "label"
        classes = {row[label] for row in splits["test"]}
        if not 1 < len(classes) < len(splits["test"]):
            raise InputError(f"{info.name} has {len(classes)} classes in {len(splits['test'])} texts; two classes are needed.")
    from datasets import Dataset, DatasetDict
    from mteb import abstasks

    from inbedder_evaluation.mteb_adapters import make_metadata

    base, mteb_kind, category = {
        "sts": (abstasks.AbsTaskSTS, "STS", "t2t"),
        "clustering": (abstasks.AbsTaskClusteringLegacy, "Clustering", "t2c"),
        "classification": (abstasks.AbsTaskClassification, "Classification", "t2c"),
        "pairs": (abstasks.AbsTaskPairClassification, "PairClassification", "t2t"),
    }[kind]
    crossed = kind == "classification" and "train" not in splits
    metadata = make_metadata(
        instruction,
        info.name,
        type=mteb_kind,
        category=category,
        main_score=info.main_score,
        dataset={"path": info.source, "revision": info.revision},
        eval_splits=["train" if crossed else "test"],
    )
    task = type(f"Local{mteb_kind}", (base,), {"metadata": metadata, "is_cross_validation": crossed})()
    if kind == "clustering":
        rows = splits["test"]
        columns = {column: [[row[column] for row in rows]] for column in ("sentences", "labels")}
        task.dataset = DatasetDict({"test": Dataset.from_dict(columns)})
    else:
        splits_named = {"train": splits["test"]} if crossed else splits
        task.dataset = DatasetDict({split: Dataset.from_list(rows) for split, rows in splits_named.items()})
    task.data_loaded = True
    return task


def load_mteb_task(kind: str, name: str) -> StandardTask:
    """Load a task of mteb from the hub at the revision that mteb pins.

    Args:
        kind: clustering or reranking.
        name: A set of this kind in ``sets.yaml`` that names a task of mteb.

    Returns:
        The task; its data are loaded when it runs.
    """
    import mteb

    task = mteb.get_task(str(find_set(kind, name).mteb))
    metadata = task.metadata
    instruction = read_instructions("standard")[name]
    revision = f"{metadata.revision[:16]} {fingerprint([], instruction)[:8]}"
    licence = str(metadata.license or "none stated")
    info = TaskInfo(f"{name} {kind}", metadata.main_score, metadata.dataset["path"], revision, licence, "see mteb")
    return StandardTask(task, instruction, info)


def load_reranking(kind: str, name: str, folder: Path) -> StandardTask:
    """Load a reranking task of mteb on rows of a local file.

    Args:
        kind: "reranking".
        name: A set of this kind in ``sets.yaml`` that has a file.
        folder: Folder of the file; its rows have "query", "positive" and "negative", the last two lists of texts.

    Returns:
        The task, its data loaded.

    Raises:
        InputError: If a row lacks one of these fields.
    """
    from datasets import Dataset
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData

    known_set = find_set(kind, name)
    rows, mteb_task = read_rows(str(folder / str(known_set.file))), load_mteb_task(kind, name)
    corpus, queries, relevant, ranked = [], [], {}, {}
    for number, row in enumerate(rows):
        if not row.get("query") or not row.get("positive") or not row.get("negative"):
            raise InputError(f"{known_set.file}, row {number + 1}: query, positive and negative are required. Remove such rows.")
        query, documents = f"q{number}", [*row["positive"], *row["negative"]]
        ids = [f"{query}-{place}" for place in range(len(documents))]
        queries.append({"id": query, "text": row["query"]})
        corpus += [{"id": name, "text": text, "title": ""} for name, text in zip(ids, documents, strict=True)]
        relevant[query], ranked[query] = dict.fromkeys(ids[: len(row["positive"])], 1), ids
    data = RetrievalSplitData(
        corpus=Dataset.from_list(corpus), queries=Dataset.from_list(queries), relevant_docs=relevant, top_ranked=ranked
    )
    mteb_task.task.dataset, mteb_task.task.data_loaded = {"default": {mteb_task.task.metadata.eval_splits[0]: data}}, True
    metadata = replace(mteb_task.info, source=str(known_set.file), revision=fingerprint([], [rows, mteb_task.instruction]))
    return StandardTask(mteb_task.task, mteb_task.instruction, metadata)
