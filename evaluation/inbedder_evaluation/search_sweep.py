"""How search by a generic index and an instructed rerank compares with reading every text under the instruction.

    python -m inbedder_evaluation.search_sweep --data DATA -o evaluation/results/search.json

A corpus with two label columns is searched by its own rows: a row is relevant to a query where both have the same label under the
criterion that is asked for. Each criterion's instruction is asked. "generic" leaves the order of the generic vectors, "all read"
compares every row under the instruction (what reranking can reach), "rerank c" reads the nearest c, "guided" compares mapped
vectors of every row. Vectors are compared as ``Index.search`` does it without an approximate index.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from inbedder.embedder import InBedder
from inbedder.io.files import atomic_write
from inbedder.prompting.templates import GENERIC_INSTRUCTION
from inbedder.search.model_vectors import encode_generic, encode_instructed
from inbedder.search.ranking import mix_scores
from inbedder.vectors import Vectors, normalize_vectors
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
    """nDCG@10 of relevant or not.

    Args:
        order: Rows, the best first.
        relevant: Of every row whether it is relevant, shape (n,).

    Returns:
        From 0 to 1; 0 where nothing is relevant.
    """
    discounts = 1 / np.log2(np.arange(2, TOP + 2))
    best = discounts[: int(relevant.sum())].sum()
    return float((relevant[order[:TOP]] * discounts[: len(order[:TOP])]).sum() / best) if best else 0.0


def recall(row_indices: NDArray[np.intp], relevant: Relevance) -> float:
    """Relevant rows among those found, out of as many as could be there.

    Args:
        row_indices: Rows.
        relevant: As for ``ndcg``.

    Returns:
        From 0 to 1.
    """
    return float(relevant[row_indices].sum() / max(min(len(row_indices), int(relevant.sum())), 1))


def measure(
    corpus: TwoCriteriaCorpus, criterion: int, vectors: dict[str, Vectors], queries: NDArray[np.intp], generic: str
) -> dict[str, float]:
    """All ways of search under one criterion.

    Args:
        corpus: The texts and their labels.
        criterion: Which of its two.
        vectors: By name, all of length 1: the generic ones, "instructed" and "guided".
        queries: Rows that are searched for.
        generic: Name of the generic vectors that find the candidates.

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
    """Both criteria of a corpus.

    Args:
        model: The model.
        corpus: The corpus.
        count: How many rows are searched for.
        sample: How many texts the guided vectors are mapped from.

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
        labels_of_row = {"set": corpus.name, "revision": corpus.revision, "criterion": name, "instruction": instruction}
        rows.append(
            {
                **labels_of_row,
                "rows": len(corpus.texts),
                "queries": len(queries),
                "guided_cosine": guided.cosine,
                "scores": scores,
            }
        )
    return rows


def draw_figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw nDCG@10 by candidates, 0 being the generic order, one line per criterion.

    Args:
        rows: Results.
        path: A .png file.
    """
    series = {
        count: {f"{row['set']}: {row['criterion']}": row["scores"][f"rerank {count}" if count else "base"] for row in rows}
        for count in (0, *CANDIDATES)
    }
    draw_lines({"nDCG@10 by candidates read again": series}, path, "candidates (0: the generic order)")


def main(
    output: Annotated[Path, typer.Option("-o", "--output", help="A .json file; the figure gets the same name as .png.")],
    data: Annotated[Path, typer.Option(help="The folder of the known sets.")],
    model: Annotated[str, typer.Option(help="mini, small, a hub id or a folder.")] = "mini",
    limit: Annotated[int, typer.Option(min=100, help="At most so many rows of each set.")] = 1500,
    queries: Annotated[int, typer.Option(min=10, help="Rows of each set that are searched for.")] = 300,
    sample: Annotated[int, typer.Option(min=50, help="Texts that the guided vectors are mapped from.")] = 500,
    cache: Annotated[Path | None, typer.Option(help="A folder that keeps vectors.")] = None,
) -> None:
    """Measure search on the corpora with two label columns."""
    loaded = InBedder(model, cache=cache)
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
