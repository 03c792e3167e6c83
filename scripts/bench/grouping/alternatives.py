"""Measure what a user would choose in place of inbedder: BERTopic, and k-means over the vectors of MiniLM.

    python -m scripts.bench.grouping.alternatives measure DATA SHEET   (writes evaluation/results/alternatives.json and a sheet)
    python -m scripts.bench.grouping.alternatives marks SHEET          (adds the marks of the sheet to the results)

It needs BERTopic (``scripts/test-integrations`` installs it). Three tables have labels of two criteria each, and each criterion
is asked for once: the V-measure of the groups with its labels (more is better), and with those of the other criterion (less is
better). The scores are means over three seeds. Groups of BERTopic and MiniLM are named by three words of c-TF-IDF. BERTopic's
texts outside any topic count as one group. Seconds are those of the CPU for vectors, groups and names of 300 texts; means are of
each table's first question, as decoders keep the states of the texts for the second. As BERTopic is made for more texts, it is
also fitted on up to 2,000, and scored on the same 300; the seconds of these rows do not compare: vectors are computed once.

The sheet is JSON lines without the method: a reader sets "mark" to 2 if the name answers the question for the five texts, which
are sampled from the group; 1 if it is vague or true of some of them; 0 if it misleads or answers another question.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import v_measure_score

from inbedder import InBedder, cluster
from inbedder.grouping.partition.partition import group
from inbedder.vectors.vectors import Vectors, normalize_vectors
from inbedder_evaluation.tasks.corpus import load_corpus
from scripts.bench.harness import ROOT, describe_run, make_parser, write_results

RESULTS = ROOT / "evaluation" / "results" / "alternatives.json"
PACKAGES = ("bertopic", "umap-learn", "hdbscan", "scikit-learn", "torch", "transformers", "numpy")
TABLES = ("amazon_multidomain", "airline_tweets", "acos_restaurant")
LARGER_MODELS = ("small", "medium")
ROWS, FITTED_ROWS, MAX_WORDS, SEEDS = 300, 2000, 60, 3
NAMES, TEXTS_SHOWN, TEXT_CHARACTERS = 4, 5, 200
"""Names per grouping on the sheet, and texts per name."""
SHEET_KEYS = ("table", "question", "name", "texts")
JUDGED = ("BERTopic", "MiniLM, k-means", "mini")


@dataclass(frozen=True)
class AskedTable:
    """The texts of a table, and the criterion that is asked for."""

    name: str
    criterion: str
    question: str
    texts: list[str]
    labels: list[str]
    """Labels of the criterion."""
    other_labels: list[str]
    """Labels of the table's other criterion."""
    further_texts: list[str]
    """More texts of the same kind, without labels."""

    @property
    def k(self) -> int:
        """Number of labels of the criterion."""
        return len(set(self.labels))


@dataclass(frozen=True)
class TimedGroups:
    """Groups of each seed, and the names and the seconds of the first."""

    labels: list[Sequence[int]]
    names: dict[int, str]
    """Name by number of the group."""
    seconds: float


def load_tables(data: Path) -> list[AskedTable]:
    """Load each table twice, once for each criterion."""
    tables = []
    for name in TABLES:
        corpus = load_corpus(name, data)
        rows = [row for row, text in enumerate(corpus.texts) if len(text.split()) <= MAX_WORDS]
        rows = random.Random(0).sample(rows, min(FITTED_ROWS, len(rows)))
        texts = [corpus.texts[row] for row in rows]
        labels = [[column[row] for row in rows[:ROWS]] for column in corpus.labels]
        for place in (0, 1):
            criterion, question = corpus.criteria[place], corpus.instructions[place]
            tables.append(AskedTable(name, criterion, question, texts[:ROWS], labels[place], labels[1 - place], texts[ROWS:]))
    return tables


def group_by_answers(table: AskedTable, model: InBedder) -> TimedGroups:
    """Group a table with ``cluster``."""
    start = time.process_time()
    result = cluster(table.texts, table.question, model, table.k)
    seconds = time.process_time() - start
    labels = [result.labels.tolist(), *(group(result.embeddings, table.k, seed).tolist() for seed in range(1, SEEDS))]
    return TimedGroups(labels, dict(enumerate(result.names)), seconds)


def make_topic_model(k: int | None, seed: int) -> Any:
    """Make a BERTopic that names topics by words that are not stopwords.

    Args:
        k: Number of groups of k-means; None for BERTopic's own UMAP and HDBSCAN.
        seed: Seed of UMAP or k-means.

    Returns:
        The model, to be fitted.
    """
    from bertopic import BERTopic
    from bertopic.dimensionality import BaseDimensionalityReduction
    from umap import UMAP

    words = CountVectorizer(stop_words="english")
    if k is None:  # BERTopic's defaults, with a seed
        reduction = UMAP(n_neighbors=15, n_components=5, min_dist=0.0, metric="cosine", low_memory=False, random_state=seed)
        return BERTopic(umap_model=reduction, vectorizer_model=words)
    k_means = KMeans(k, n_init=10, random_state=seed)
    return BERTopic(umap_model=BaseDimensionalityReduction(), hdbscan_model=k_means, vectorizer_model=words)


def group_by_topics(
    table: AskedTable,
    encode: Callable[[list[str]], Vectors],
    k: int | None = None,
    topics: int | None = None,
    *,
    with_further_texts: bool = False,
) -> TimedGroups:
    """Group a table with BERTopic.

    Args:
        table: The table.
        encode: Computes the vectors of texts.
        k: Number of groups of k-means; None for UMAP and HDBSCAN.
        topics: Number of topics to reduce HDBSCAN's to; None keeps its own.
        with_further_texts: Whether it is fitted on the table's further texts too; their vectors are computed once per table.

    Returns:
        Groups, of which -1 holds the texts outside any topic.
    """
    all_labels, names, seconds = [], {}, 0.0
    texts = table.texts + table.further_texts if with_further_texts else table.texts
    start = time.process_time()
    vectors = normalize_vectors(encode(texts))
    for seed in range(SEEDS):
        topic_model = make_topic_model(k, seed).fit(texts, vectors)
        if topics is not None:
            topic_model.reduce_topics(texts, nr_topics=topics + (-1 in topic_model.topics_))
        all_labels.append([int(topic) for topic in topic_model.topics_[: len(table.texts)]])
        if seed == 0:
            seconds = time.process_time() - start
            names = {
                number: " ".join(word for word, _ in ranked[:3])
                for number, ranked in topic_model.get_topics().items()
                if number >= 0
            }
    return TimedGroups(all_labels, names, seconds)


def score_groups(table: AskedTable, groups: TimedGroups) -> dict[str, Any]:
    """Score the groups of all seeds against the labels of both criteria."""
    return {
        "v_measure": round(100 * mean(v_measure_score(table.labels, labels) for labels in groups.labels), 1),
        "other_v_measure": round(100 * mean(v_measure_score(table.other_labels, labels) for labels in groups.labels), 1),
        "groups": round(mean(len(set(labels) - {-1}) for labels in groups.labels), 1),
        "outside": round(100 * mean(float(np.mean(np.array(labels) == -1)) for labels in groups.labels), 1),
        "seconds": round(groups.seconds, 1),
    }


def sample_names(table: AskedTable, groups: TimedGroups) -> list[dict[str, Any]]:
    """Sample names of a grouping, each with texts of its group; without commas, which betray the method."""
    draw = random.Random(0)
    numbers = sorted(groups.names)
    rows = []
    for number in sorted(draw.sample(numbers, min(NAMES, len(numbers)))):
        texts = [text for text, label in zip(table.texts, groups.labels[0], strict=True) if label == number]
        rows.append(
            {
                "table": table.name,
                "question": table.question,
                "name": " ".join(groups.names[number].replace(",", " ").split()),
                "texts": [" ".join(text.split())[:TEXT_CHARACTERS] for text in draw.sample(texts, min(TEXTS_SHOWN, len(texts)))],
            }
        )
    return rows


def summarize(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Compute the means of each method over all questions; seconds over the first question of each table."""
    methods: dict[str, list[dict[str, Any]]] = {}
    for row in results:
        methods.setdefault(row["method"], []).append(row)
    scores = ("v_measure", "other_v_measure", "groups", "outside")
    return {
        method: {
            **{score: round(mean(row[score] for row in rows), 1) for score in scores},
            "seconds": round(mean({row["table"]: row["seconds"] for row in reversed(rows)}.values()), 1),
        }
        for method, rows in methods.items()
    }


def list_methods() -> dict[str, Callable[[AskedTable], TimedGroups]]:
    """List the methods by name, the fast ones first; a model is loaded when its method is first called."""
    models: dict[str, InBedder] = {}

    def load(name: str) -> InBedder:
        if name not in models:
            models[name] = InBedder(name)
            models[name].encode("One text, so that later ones are timed warm.", "What is it about?")
        return models[name]

    def group_prefixed(table: AskedTable) -> TimedGroups:
        def encode(texts: list[str]) -> Vectors:
            return load("mini").encode([f"{table.question} {text}" for text in texts])

        return group_by_topics(table, encode, table.k)

    cached_vectors: dict[str, Vectors] = {}

    def group_more_texts(table: AskedTable, topics: int | None) -> TimedGroups:
        def encode(texts: list[str]) -> Vectors:
            if table.name not in cached_vectors:
                cached_vectors[table.name] = load("mini").encode(texts)
            return cached_vectors[table.name]

        return group_by_topics(table, encode, topics=topics, with_further_texts=True)

    return {
        "BERTopic": lambda table: group_by_topics(table, load("mini").encode),
        "BERTopic, nr_topics": lambda table: group_by_topics(table, load("mini").encode, topics=table.k),
        "MiniLM, k-means": lambda table: group_by_topics(table, load("mini").encode, table.k),
        "MiniLM, question before the text, k-means": group_prefixed,
        "mini": lambda table: group_by_answers(table, load("mini")),
        "BERTopic, more texts": lambda table: group_more_texts(table, None),
        "BERTopic, more texts, nr_topics": lambda table: group_more_texts(table, table.k),
        **{name: lambda table, name=name: group_by_answers(table, load(name)) for name in LARGER_MODELS},  # type: ignore[misc]
    }


def measure(data: Path, sheet: Path, description: dict[str, Any], output: Path) -> None:
    """Measure all methods; write the results after each, and the sheet after the last that is judged."""
    tables, methods = load_tables(data), list_methods()
    methods["BERTopic"](tables[-1])  # compiles UMAP
    results: list[dict[str, Any]] = []
    names: list[dict[str, Any]] = []
    for method, make_groups in methods.items():
        for table in tables:
            groups = make_groups(table)
            place = {"table": table.name, "criterion": table.criterion, "question": table.question, "k": table.k}
            related = round(100 * v_measure_score(table.labels, table.other_labels), 1)
            results.append({"method": method, **place, "v_measure_of_labels": related, **score_groups(table, groups)})
            if method in JUDGED:
                names += [{"method": method, **row} for row in sample_names(table, groups)]
        if method == JUDGED[-1]:
            random.Random(0).shuffle(names)
            lines = [json.dumps({"mark": None, **{key: row[key] for key in SHEET_KEYS}}, ensure_ascii=False) for row in names]
            sheet.write_text("\n".join(lines) + "\n", encoding="utf-8")
        judged = [{key: row[key] for key in ("table", "question", "method", "name")} for row in names]
        sizes = {"rows": ROWS, "fitted_rows": FITTED_ROWS}
        write_results(output, {**description, **sizes, "methods": summarize(results), "results": results, "names": judged})


def add_marks(content: dict[str, Any], marks: Sequence[int]) -> dict[str, Any]:
    """Add the marks of a sheet to the results: each name's, and each method's mean and count.

    Args:
        content: The results.
        marks: A mark per name, in the sheet's order.

    Returns:
        The results with marks.
    """
    names = [{**row, "mark": mark} for row, mark in zip(content["names"], marks, strict=True)]
    methods = dict(content["methods"])
    for method in dict.fromkeys(row["method"] for row in names):
        method_marks = [row["mark"] for row in names if row["method"] == method]
        methods[method] = {**methods[method], "mean_mark": round(mean(method_marks), 2), "names": len(method_marks)}
    return {**content, "methods": methods, "names": names}


def main() -> None:
    """Measure and write, or add the marks of a reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="part", required=True)
    parts = {
        part: commands.add_parser(part, parents=[make_parser(None, RESULTS)], add_help=False) for part in ("measure", "marks")
    }
    parts["measure"].add_argument("data", type=Path)
    for part in parts.values():
        part.add_argument("sheet", type=Path)
    options = parser.parse_args()
    if options.part == "measure":
        measure(options.data, options.sheet, describe_run(options, PACKAGES), options.output)
    else:
        rows = [json.loads(line) for line in options.sheet.read_text(encoding="utf-8").splitlines()]
        content = json.loads(options.output.read_text(encoding="utf-8"))
        write_results(options.output, add_marks(content, [row["mark"] for row in rows]))


if __name__ == "__main__":
    main()
