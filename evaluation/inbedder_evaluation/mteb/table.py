"""Tables of INSTRUCTOR's measurement on MTEB: each set, the mean of each kind of task, and the mean of all (paper, table 2)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from statistics import mean

from inbedder_evaluation.mteb.instructions import read_instructed_sets
from inbedder_evaluation.results import Cell, select_newest
from inbedder_evaluation.tasks.task import SHIPPED


@cache
def read_published_scores() -> dict[str, dict[str, float]]:
    """Read the scores of the INSTRUCTOR paper's tables 9 and 10 by model and set, times 100."""
    content = json.loads((SHIPPED / "instructor_paper.json").read_text(encoding="utf-8"))
    return {
        model: {name: scores[column] for name, scores in content["scores"].items()}
        for column, model in enumerate(content["models"])
    }


def average_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """Average scores as MTEB does.

    Args:
        scores: Main score by set. The twelve CQADupstack sets count as one.

    Returns:
        The mean by kind of task, in the order of ``prompts/mteb.yaml``, and under "all" the mean over all sets.
    """
    by_group: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for known_set in read_instructed_sets():
        if known_set.name in scores:
            by_group[known_set.kind][known_set.group].append(scores[known_set.name])
    means = {kind: [mean(values) for values in groups.values()] for kind, groups in by_group.items()}
    return {kind: mean(values) for kind, values in means.items()} | {"all": mean(chain.from_iterable(means.values()))}


def make_suite_table(cells: Sequence[Cell]) -> list[list[str]]:
    """Format main scores by set, kind and model.

    Args:
        cells: The measured cells.

    Returns:
        A header row, a row per set, and a row per kind and for all sets with the means. A model that the paper measured has
        another column with the paper's scores of the same sets.
    """
    columns: dict[str, dict[str, float]] = {}
    for model, scores in _collect_scores(cells).items():
        columns[model] = scores
        published = read_published_scores().get(model.split(", ")[0])
        if published is not None:
            columns.setdefault(f"{model.split(', ')[0]} (paper)", {}).update({name: published[name] for name in scores})
    sets = [known_set for known_set in read_instructed_sets() if any(known_set.name in scores for scores in columns.values())]
    rows = [["set", "kind", *columns]]
    rows += [[each.name, each.kind, *(_format(scores.get(each.name)) for scores in columns.values())] for each in sets]
    averages = [average_scores(scores) for scores in columns.values()]
    for kind in [*dict.fromkeys(each.kind for each in sets), "all"]:
        rows.append([f"mean, {len({each.group for each in sets if kind in (each.kind, 'all')})} sets", kind])
        rows[-1] += [_format(average.get(kind)) for average in averages]
    return rows


def make_wording_table(cells: Sequence[Cell]) -> list[list[str]]:
    """Compare a model's wordings by their mean scores (INSTRUCTOR paper, figure 4).

    Args:
        cells: The measured cells.

    Returns:
        A header row and a row per model: the number of wordings, the best and the worst mean over the sets that all of them
        share, and their difference. Empty when no model was measured under several wordings.
    """
    by_model: dict[str, list[dict[str, float]]] = defaultdict(list)
    for title, scores in _collect_scores(cells).items():
        if not title.endswith((", by mteb", ", no instruction")):
            by_model[title.rsplit(", ", 1)[0] if title.endswith(" wording") else title].append(scores)
    rows = []
    for model, wordings in by_model.items():
        shared_sets = set.intersection(*(set(scores) for scores in wordings))
        if len(wordings) > 1 and shared_sets:
            means = [average_scores({name: scores[name] for name in shared_sets})["all"] for scores in wordings]
            rows.append([model, str(len(means)), *map(_format, (max(means), min(means), max(means) - min(means)))])
    return [["model", "wordings", "best", "worst", "difference"], *rows] if rows else []


def _collect_scores(cells: Sequence[Cell]) -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    for cell in select_newest(cells):
        scores.setdefault(cell.model, {})[cell.task] = cell.scores[cell.main_score]
    return scores


def _format(score: float | None) -> str:
    return "" if score is None else f"{score:.1f}"
