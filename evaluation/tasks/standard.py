"""Standard kinds of tasks, measured by mteb's own classes: STS, clustering, classification probe, pair classification, reranking.

``standard.yaml`` names the local sets; rerankings come from the hub through mteb's own tasks. Embedders are asked once for all
texts of a set, under the set's instruction (``prompts/evaluation.yaml``), and mteb's evaluators work on these vectors.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from evaluation.tasks.base import Encode, Rows, Scores, TaskInfo, fingerprint, instructions_of, read_hub, read_jsonl
from inbedder.errors import InputError

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask

RERANKINGS = ("AskUbuntuDupQuestions", "SciDocsRR", "StackOverflowDupQuestions")
"""mteb's own tasks, which pin their revisions on the hub."""
HUB_CLUSTERINGS = {
    "fewrel": ("BrandonZYW/FewRelClustering", "d951bf6cb10522c042bf8db3a837028b7e69388f", "Han et al. 2018"),
    "fewnerd": ("BrandonZYW/FewNerdClustering", "9dff096e4ca4dd38688236fa1d4e4c17cb547e66", "Ding et al. 2021"),
    "fewevent": ("BrandonZYW/FewEventClustering", "aecc9c3ad7ae8d05b8621390d1919f1816eab777", "Deng et al. 2020"),
}
"""The InBedder authors' own versions of three sets: path, revision, citation."""
MAIN_SCORES = {"sts": "cosine_spearman", "clustering": "v_measure", "classification": "accuracy", "pairs": "cosine_ap"}
COLUMNS = {
    "sts": {"sentence1": "sentence1", "sentence2": "sentence2", "score": "score"},
    "classification": {"text": "text", "label": "label"},
}
TEXTS = {"sts": ("sentence1", "sentence2"), "clustering": ("sentences",), "classification": ("text",)}
TEXTS["pairs"] = TEXTS["sts"]


@dataclass(frozen=True)
class StandardSet:
    """A set of ``standard.yaml``."""

    name: str
    """Its name."""
    kind: str
    """sts, clustering, classification or pairs."""
    test: str
    """File in the data folder."""
    licence: str
    """Licence of the data."""
    citation: str
    """Who made it."""
    train: str | None = None
    """Training file of a probe; without one the probe is cross-validated."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The class's columns and the file's fields."""

    def read(self, file: str, folder: Path, limit: int | None) -> Rows:
        """Rows of a file with the class's columns; those that lack one are left out.

        Args:
            file: File in the folder.
            folder: Data folder.
            limit: At most so many rows, drawn with seed 0.

        Returns:
            The rows.
        """
        columns = self.columns or COLUMNS[self.kind]
        rows = [{new: row.get(old) for new, old in columns.items()} for row in read_jsonl(folder / file)]
        rows = [row for row in rows if all(value is not None and value != "" for value in row.values())]
        return random.Random(0).sample(rows, limit) if limit is not None and len(rows) > limit else rows


@cache
def standard_sets() -> dict[str, StandardSet]:
    """The sets of ``standard.yaml`` by name."""
    content = yaml.safe_load(Path(__file__).with_name("standard.yaml").read_text(encoding="utf-8"))
    return {name: StandardSet(name, **about) for name, about in content.items()}


class StandardTask:
    """A task of mteb under one instruction."""

    def __init__(self, task: AbsTask, instruction: str, info: TaskInfo) -> None:
        """Take a task.

        Args:
            task: One of mteb's, its data loaded or to be loaded from the hub.
            instruction: What is asked of every text.
            info: Where it comes from.
        """
        self.task = task
        self.instruction = instruction
        self.info = info
        self.seeded = task.metadata.type == "Clustering"

    def first_input(self) -> tuple[str, str]:
        """The first text and the instruction."""
        texts = self._texts()
        return texts[0] if texts else "", self.instruction

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Scores of mteb's evaluator.

        Args:
            encode: Texts and an instruction to vectors.
            seed: Seed of k-means.

        Returns:
            All scores that are single numbers, times 100.

        Raises:
            InputError: When the hub is not in reach.
        """
        from evaluation.mteb_encoder import FunctionEncoder

        self._load()
        encoder = FunctionEncoder(lambda texts: encode(texts, self.instruction))
        encoder.remember(self._texts())
        self.task.seed = seed if self.seeded else 42
        split = self.task.metadata.eval_splits[0]
        if self.seeded:
            scores = self.task.evaluate(encoder, split, encode_kwargs={"batch_size": 64}, seed=seed)["default"]
        else:
            scores = self.task.evaluate(encoder, split, encode_kwargs={"batch_size": 64})["default"]
        return {name: 100 * float(score) for name, score in scores.items() if isinstance(score, (int, float))}

    def _load(self) -> None:
        if self.task.data_loaded:
            return
        try:
            self.task.load_data()
        except Exception as error:
            name = self.task.metadata.dataset["path"]
            raise InputError(f"Cannot read {name} from the hub ({type(error).__name__}: {error}). It needs a network.") from error

    def _texts(self) -> list[str]:
        """All texts of loaded data, so that one call encodes (and centres) them together."""
        if not self.task.data_loaded:
            return []
        kind = next((kind for kind, score in MAIN_SCORES.items() if score == self.info.main_score), None)
        if kind is None:  # a reranking; mteb puts titles in front of texts
            data: Any = self.task.dataset["default"][self.task.metadata.eval_splits[0]]  # type: ignore[index, call-overload]
            documents = [f"{row.get('title') or ''} {row['text']}".strip() for row in data["corpus"]]
            return list(dict.fromkeys([*data["queries"]["text"], *documents]))
        found = [text for split in self.task.dataset.values() for column in TEXTS[kind] for text in split[column]]  # type: ignore[union-attr]
        return found[0] if kind == "clustering" else list(dict.fromkeys(found))


def standard_task(name: str, folder: Path, limit: int | None = None) -> StandardTask:
    """A standard set from a local folder.

    Args:
        name: A name of ``standard.yaml``.
        folder: Where the sets lie, one folder each.
        limit: At most so many rows a split, drawn with seed 0.

    Returns:
        The task.

    """
    about = standard_sets()[name]
    splits = {"test": about.read(about.test, folder, limit)}
    if about.train:
        splits["train"] = about.read(about.train, folder, limit)
    instruction = instructions_of("standard")[name]
    sample = f" ({limit} rows)" if limit is not None and len(splits["test"]) == limit else ""
    info = TaskInfo(
        name=f"{name}{sample} {'STS' if about.kind == 'sts' else about.kind}",
        main_score=MAIN_SCORES[about.kind],
        source=about.test,
        revision=fingerprint([], [splits, instruction]),
        licence=about.licence,
        citation=about.citation,
    )
    return StandardTask(local_task(about.kind, splits, info, instruction), instruction, info)


def hub_clustering(name: str) -> StandardTask:
    """A clustering of the InBedder paper, from the hub at its pinned revision.

    Args:
        name: A name of ``HUB_CLUSTERINGS``.

    Returns:
        The task.
    """
    path, revision, citation = HUB_CLUSTERINGS[name]
    rows = [{"sentences": row["text"], "labels": row["cluster"]} for row in read_hub(path, revision)]
    instruction = instructions_of("standard")[name]
    asked = f"{revision} {fingerprint([], instruction)[:8]}"
    info = TaskInfo(f"{name} (authors') clustering", "v_measure", path, asked, "see the hub", citation)
    return StandardTask(local_task("clustering", {"test": rows}, info, instruction), instruction, info)


def local_task(kind: str, splits: Mapping[str, Rows], info: TaskInfo, instruction: str) -> AbsTask:
    """One of mteb's own task classes with local rows.

    Args:
        kind: sts, clustering, classification or pairs.
        splits: Rows by split; a classification without "train" is cross-validated.
        info: Where they come from.
        instruction: The task's prompt.

    Returns:
        A task whose data are loaded.

    Raises:
        InputError: When there is a single class, or fewer texts than classes.
    """
    if kind in ("clustering", "classification"):
        label = "labels" if kind == "clustering" else "label"
        classes = {row[label] for row in splits["test"]}
        if not 1 < len(classes) < len(splits["test"]):
            raise InputError(f"{info.name} has {len(classes)} classes in {len(splits['test'])} texts; nothing to tell apart.")
    from datasets import Dataset, DatasetDict
    from mteb import abstasks

    from evaluation.mteb_encoder import metadata_of

    base, mteb_kind, category = {
        "sts": (abstasks.AbsTaskSTS, "STS", "t2t"),
        "clustering": (abstasks.AbsTaskClusteringLegacy, "Clustering", "t2c"),
        "classification": (abstasks.AbsTaskClassification, "Classification", "t2c"),
        "pairs": (abstasks.AbsTaskPairClassification, "PairClassification", "t2t"),
    }[kind]
    crossed = kind == "classification" and "train" not in splits
    metadata = metadata_of(
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
        one = {column: [[row[column] for row in rows]] for column in ("sentences", "labels")}
        task.dataset = DatasetDict({"test": Dataset.from_dict(one)})
    else:
        named = {"train": splits["test"]} if crossed else splits
        task.dataset = DatasetDict({split: Dataset.from_list(rows) for split, rows in named.items()})
    task.data_loaded = True
    return task  # type: ignore[no-any-return]


def reranking(name: str) -> StandardTask:
    """A reranking of mteb, from the hub at the revision that mteb pins.

    Args:
        name: A name of ``RERANKINGS``.

    Returns:
        The task; its data are loaded when it runs.
    """
    import mteb

    task = mteb.get_task(name)
    about = task.metadata
    instruction = instructions_of("standard")[name]
    revision = f"{about.revision[:16]} {fingerprint([], instruction)[:8]}"
    licence = str(about.license or "none stated")
    info = TaskInfo(f"{name} reranking", about.main_score, about.dataset["path"], revision, licence, "see mteb")
    return StandardTask(task, instruction, info)
