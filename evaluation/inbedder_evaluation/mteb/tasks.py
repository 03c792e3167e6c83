"""Triplet and conditional similarity tasks for mteb, and the paper's sets as mteb tasks.

mteb has neither kind of task. Both classes work like mteb's own: a subclass names a set of the hub in ``metadata``, or
``with_rows`` supplies local rows. Models receive the instruction as the task's prompt, whatever prompt template they use::

    mteb.evaluate(MtebEncoder("mini"), [IntentEmotionEmotion(), IntentEmotionIntent(), InstructSTSBTask()])

The hub's sets (BrandonZYW/...) are the InBedder authors' own, at the revisions that their code pins.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.vectors.vectors import compute_row_cosines
from inbedder_evaluation.metrics import pearson, spearman, triplet_success
from inbedder_evaluation.mteb_adapters import AbsTask, AbsTaskClusteringLegacy, make_loader, make_metadata
from inbedder_evaluation.tasks.sets import find_set
from inbedder_evaluation.tasks.task import fingerprint, read_instructions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from datasets import Dataset

    from inbedder.vectors.vectors import Vectors
    from inbedder_evaluation.tasks.task import Rows


class InstructedTask(AbsTask):
    """Base class of both kinds: rows of texts that are encoded under a prompt."""

    metadata: Any
    """mteb's metadata of the task."""
    text_columns: tuple[str, ...] = ()
    """Columns that hold texts."""

    def with_rows(self, rows: Rows, split: str = "test") -> InstructedTask:
        """Use local rows instead of the hub's.

        Args:
            rows: Rows with the task's columns.
            split: Name of the split.

        Returns:
            The task itself.
        """
        from datasets import Dataset, DatasetDict

        self.dataset = DatasetDict({split: Dataset.from_list(rows)})
        self.data_loaded = True
        mark = fingerprint(rows)  # keeps mteb from confusing these results with those of the hub's set
        changes = {"name": f"{type(self).metadata.name}-{mark[:8]}", "dataset": {"path": "local rows", "revision": mark}}
        self.metadata = self.metadata.model_copy(update=changes)
        return self

    def _encode(self, model: Any, texts: Sequence[str], prompt: str | None, kwargs: Mapping[str, Any]) -> Vectors:
        metadata = self.metadata.model_copy(update={"prompt": prompt})
        options = {"batch_size": 64, "show_progress_bar": False, **kwargs["encode_kwargs"]}
        loader = make_loader(texts, options["batch_size"])
        split_kwargs = {"hf_split": kwargs["hf_split"], "hf_subset": kwargs["hf_subset"]}
        return np.asarray(model.encode(loader, task_metadata=metadata, **split_kwargs, **options), dtype=np.float32)

    def _calculate_descriptive_statistics_from_split(self, split: str, **_options: Any) -> Any:
        rows = self.dataset[split]
        lengths = [len(text) for column in self.text_columns for text in rows[column]]
        return {"num_samples": len(rows), "number_of_characters": sum(lengths)}


class AbsTaskTriplets(InstructedTask):
    """Triplets (InBedder paper, section 3.2): is the anchor more similar to the positive than to the negative?

    The columns are anchor, positive and negative. The score triplet_accuracy is the share of successes; ties are failures.
    """

    text_columns = ("anchor", "positive", "negative")
    abstask_prompt = "What is this text about?"

    def _evaluate_subset(self, model: Any, data_split: Dataset, **kwargs: Any) -> dict[str, float]:
        texts = [text for column in self.text_columns for text in data_split[column]]
        parts = np.split(self._encode(model, texts, self.metadata.prompt or self.abstask_prompt, kwargs), 3)
        return {"triplet_accuracy": triplet_success(*parts) / 100}


class AbsTaskConditionalSTS(InstructedTask):
    """Similarity of two sentences, with one condition per pair (C-STS; InstructSTSB).

    The columns are sentence1, sentence2, the instruction or condition, and a score. The scores are the Spearman and Pearson
    correlations of the cosines with that column.
    """

    text_columns = ("sentence1", "sentence2")
    instruction_column = "instruction"
    score_column = "score"
    abstask_prompt = "What is this text about?"

    def _evaluate_subset(self, model: Any, data_split: Dataset, **kwargs: Any) -> dict[str, float]:
        rows: dict[str, list[int]] = defaultdict(list)
        for row, instruction in enumerate(data_split[self.instruction_column]):
            rows[instruction].append(row)
        firsts, seconds = (list(data_split[column]) for column in self.text_columns)
        cosines = np.empty(len(data_split))
        for instruction, row_indices in rows.items():
            texts = [side[row] for side in (firsts, seconds) for row in row_indices]
            cosines[row_indices] = compute_row_cosines(*np.split(self._encode(model, texts, instruction, kwargs), 2))
        scores = [float(score) for score in data_split[self.score_column]]
        return {"cosine_spearman": spearman(cosines, scores) / 100, "cosine_pearson": pearson(cosines, scores) / 100}


def _set(kind: str, name: str, config: str | None = None) -> dict[str, str]:
    path, revision = find_set(kind, name).pinned
    return {"path": path, "revision": revision} | ({"name": config} if config else {})


def _make_triplet_metadata(name: str, criterion: str) -> Any:
    prompt = read_instructions("intent_emotion")[criterion]
    return make_metadata(prompt, name, dataset=_set("intent emotion", "IntentEmotion", criterion), main_score="triplet_accuracy")


class IntentEmotionEmotion(AbsTaskTriplets):
    """IntentEmotion under the emotion's question."""

    metadata = _make_triplet_metadata("IntentEmotionEmotion", "emotion")


class IntentEmotionIntent(AbsTaskTriplets):
    """IntentEmotion under the intent's question."""

    metadata = _make_triplet_metadata("IntentEmotionIntent", "intent")


class InstructSTSBTask(AbsTaskConditionalSTS):
    """InstructSTSB, the authors' set on the hub."""

    metadata = make_metadata("What is this text about?", "InstructSTSB", dataset=_set("instruct sts", "InstructSTSB"))


class _NYT(AbsTaskClusteringLegacy):
    """mteb's clustering task, on the authors' columns converted to mteb's."""

    def dataset_transform(self, num_proc: int | None = None, **_options: Any) -> None:
        from datasets import Dataset, DatasetDict

        rows: Any = self.dataset["test"]  # type: ignore[has-type]
        columns = {"sentences": [list(rows["text"])], "labels": [list(rows["cluster"])]}
        self.dataset = DatasetDict({"test": Dataset.from_dict(columns)})


def _make_clustering_metadata(name: str, criterion: str) -> Any:
    fields = {"type": "Clustering", "category": "t2c", "main_score": "v_measure"}
    return make_metadata(read_instructions("nyt")[criterion], name, dataset=_set("corpus", "NYT", criterion), **fields)


class NYTTopicClustering(_NYT):
    """New York Times articles, clustered by topic."""

    metadata = _make_clustering_metadata("NYTTopicClustering", "topic")


class NYTLocationClustering(_NYT):
    """New York Times articles, clustered by location."""

    metadata = _make_clustering_metadata("NYTLocationClustering", "location")
