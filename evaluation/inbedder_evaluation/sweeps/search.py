"""Comparison of a generic index plus instructed reranking with reading every text under the instruction.

    python -m inbedder_evaluation.sweeps.search --data DATA -o evaluation/results/search.json

Rows of a corpus with two label columns serve as queries: a row is relevant when it has the query's label under the criterion that
the instruction asks for. Both criteria are measured. "base", "@generic" and "both" rank by generic vectors. "instructed" ranks
all rows by vectors read under the instruction, the upper bound for reranking. "rerank c" rereads the nearest c rows under the
instruction. "guided" ranks all rows by mapped vectors. Similarities are those of ``Index.search`` without an approximate index.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from inbedder.cli.model_options import with_model_options
from inbedder.embedder import InBedder
from inbedder.io.files import atomic_write
from inbedder.prompting.templates import GENERIC_INSTRUCTION
from inbedder.search.model_vectors import encode_generic, encode_instructed
from inbedder.search.ranking import mix_scores
from inbedder.vectors.vectors import Vectors, normalize_vectors
from inbedder_evaluation.figures import draw_lines
from inbedder_evaluation.runner import format_command
from inbedder_evaluation.tasks.corpus import TwoCriteriaCorpus, load_corpus

SETS = ("amazon_multidomain", "airline_tweets", "acos_restaurant", "clinc150", "hwu64")
CANDIDATES = (50, 100, 200, 500)
WEIGHTS: tuple[float | str, ...] = (0.0, 0.25, 0.5, "auto")
TOP = 10
Scores = NDArray[np.floating[Any]]
Relevance = NDArray[np.bool_]


def ndcg(order: NDArray[np.intp], relevant: Relevance) -> float:
    """Compute nDCG@10 with binary relevance.

    Args:
        order: Row numbers, the best first.
        relevant: Whether each row is relevant, shape (n,).

    Returns:
        0 to 1; 0 when no row is relevant.
    """
    discounts = 1 / np.log2(np.arange(2, TOP + 2))
    best = discounts[: int(relevant.sum())].sum()
    return float((relevant[order[:TOP]] * discounts[: len(order[:TOP])]).sum() / best) if best else 0.0


def recall(row_indices: NDArray[np.intp], relevant: Relevance) -> float:
    """Compute the share of relevant rows that were retrieved, out of as many as fit into the result.

    Args:
        row_indices: Numbers of the retrieved rows.
        relevant: Whether each row is relevant, shape (n,).

    Returns:
        0 to 1.
    """
    return float(relevant[row_indices].sum() / max(min(len(row_indices), int(relevant.sum())), 1))


def measure(
    corpus: TwoCriteriaCorpus, criterion: int, vectors: dict[str, Vectors], queries: NDArray[np.intp], generic: str
) -> dict[str, float]:
    """Measure all ways of searching under one criterion.

    Args:
        corpus: The texts and their labels.
        criterion: Index of the criterion, 0 or 1.
        vectors: Normalized vectors by name: the generic ones, "instructed" and "guided".
        queries: Numbers of the rows that serve as queries.
        generic: Name of the generic vectors that retrieve the candidates.

    Returns:
        Mean scores over the queries, in percent.
    """
    labels = np.asarray(corpus.labels[criterion])
    sums: dict[str, list[float]] = {}
    for query in queries:
        relevant = labels == labels[query]
        relevant[query] = False
        scores = {name: values @ values[query] for name, values in vectors.items()}
        for values in scores.values():
            values[query] = -np.inf
        orders = {name: np.argsort(-values, kind="stable")[:-1] for name, values in scores.items()}
        row_indices = {name: ndcg(order, relevant) for name, order in orders.items()}
        for count in CANDIDATES:
            candidates = orders[generic][:count]
            row_indices[f"recall {count}"] = recall(candidates, relevant)
            for weight in WEIGHTS if count == 200 else (0.0,):
                order = candidates[
                    np.argsort(
                        -mix_scores(scores["instructed"][candidates], scores[generic][candidates], weight)[0], kind="stable"
                    )
                ]
                row_indices[f"rerank {count}" + (f", weight {weight}" if weight else "")] = ndcg(order, relevant)
        for name, score in row_indices.items():
            sums.setdefault(name, []).append(score)
    return {name: round(100 * float(np.mean(values)), 2) for name, values in sums.items()}


def measure_corpus(model: InBedder, corpus: TwoCriteriaCorpus, count: int, sample: int) -> list[dict[str, Any]]:
    """Measure search under both criteria of a corpus.

    Args:
        model: The model.
        corpus: The corpus.
        count: Number of queries.
        sample: Number of texts read under the instruction to fit the guided vectors.

    Returns:
        One row of results per criterion.
    """
    base = encode_generic(model, corpus.texts)
    own_generic = encode_instructed(model, corpus.texts, GENERIC_INSTRUCTION)
    queries = np.random.default_rng(0).choice(len(corpus.texts), min(count, len(corpus.texts)), replace=False)
    rows = []
    for criterion, (name, instruction) in enumerate(zip(corpus.criteria, corpus.instructions, strict=True)):
        vectors = {"base": base, "@generic": own_generic, "both": normalize_vectors(np.hstack([base, own_generic]))}
        vectors["instructed"] = encode_instructed(model, corpus.texts, instruction)
        guided = model.encode_guided(corpus.texts, instruction, generic=base, sample=sample)
        vectors["guided"] = normalize_vectors(np.asarray(guided))
        scores = measure(corpus, criterion, vectors, queries, "base")
        row_labels = {"set": corpus.name, "revision": corpus.revision, "criterion": name, "instruction": instruction}
        rows.append(
            {
                **row_labels,
                "rows": len(corpus.texts),
                "queries": len(queries),
                "guided_cosine": guided.cosine,
                "scores": scores,
            }
        )
    return rows


def draw_figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw nDCG@10 by number of candidates, one line per criterion; 0 candidates is the generic order.

    Args:
        rows: Results, one row per criterion.
        path: A .png file.
    """
    series = {
        count: {f"{row['set']}: {row['criterion']}": row["scores"][f"rerank {count}" if count else "base"] for row in rows}
        for count in (0, *CANDIDATES)
    }
    draw_lines({"nDCG@10 by candidates read again": series}, path, "candidates (0: the generic order)")


@with_model_options
def main(
    output: Annotated[Path, typer.Option("-o", "--output", help="A .json file; the figure has the same name and ends in .png.")],
    data: Annotated[Path, typer.Option(help="Folder of the known sets.")],
    model: Annotated[str, typer.Option(help="a bundled model, a hub id or a folder.")] = "mini",
    limit: Annotated[int, typer.Option(min=100, help="Maximum number of rows per set.")] = 1500,
    queries: Annotated[int, typer.Option(min=10, help="Number of queries per set.")] = 300,
    sample: Annotated[int, typer.Option(min=50, help="Number of texts read to fit the guided vectors.")] = 500,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Measure search on the corpora with two label columns."""
    loaded = InBedder(model, **model_options)
    rows: list[dict[str, Any]] = []
    for name in SETS:
        rows += measure_corpus(loaded, load_corpus(name, data, limit), queries, sample)
        row_indices = {
            "command": format_command(),
            "model": model,
            "spec": loaded.spec.contents(),
            "results": rows,
        }
        with atomic_write(output) as temporary:
            temporary.write_text(json.dumps(row_indices, indent=1) + "\n", encoding="utf-8")
    draw_figure(rows, output.with_suffix(".png"))


if __name__ == "__main__":
    typer.run(main)
