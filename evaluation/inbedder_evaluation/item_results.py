"""Results per item of a task, for confidence intervals of scores and for paired comparisons of models.

Items that depend on each other (both conditions of a pair, both criteria of a triplet, all triplets of one anchor) form one
unit. The bootstrap draws units with replacement, since items of one unit are not independent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError
from inbedder.io.files import atomic_write
from inbedder_evaluation.metrics import harmonic_mean, pearson, spearman

RESAMPLES = 1000
Columns = Mapping[str, NDArray[Any]]
Resampled = tuple[tuple[float, float], NDArray[np.float64]]


def _compute_success(items: Columns) -> float:
    counts = np.bincount(items["criterion"])
    return harmonic_mean(list(100 * np.bincount(items["criterion"], weights=items["success"]) / counts))


def _average_precision(items: Columns) -> float:
    from sklearn.metrics import average_precision_score

    return 100 * float(average_precision_score(items["label"], items["cosine"]))


def _compute_v_measure(items: Columns) -> float:
    criterion_masks = [items["criterion"] == criterion for criterion in np.unique(items["criterion"])]
    return harmonic_mean([100 * _compute_agreement(items["label"][rows], items["group"][rows]) for rows in criterion_masks])


def _compute_agreement(labels: NDArray[np.int64], groups: NDArray[np.int64]) -> float:
    """Compute the V-measure of integer labels without the argument checks that make scikit-learn's slow in a bootstrap."""
    from scipy.special import entr

    joint = labels * (groups.max() + 1) + groups
    label_entropy, group_entropy, joint_entropy = (
        entr(np.bincount(side) / len(labels)).sum() for side in (labels, groups, joint)
    )
    return (
        float(2 * (label_entropy + group_entropy - joint_entropy) / (label_entropy + group_entropy))
        if label_entropy + group_entropy > 0
        else 1.0
    )


STATISTICS: dict[str, Callable[[Columns], float]] = {
    "success": _compute_success,
    "v_measure": _compute_v_measure,
    "average_precision": _average_precision,
    "spearman": lambda items: spearman(items["cosine"], items["rating"]),
    "pearson": lambda items: pearson(items["cosine"], items["rating"]),
    "mean": lambda items: float(np.mean(items["score"])),
}
"""Functions that compute the main score from the items; the first two are harmonic means over the criteria."""


@dataclass(frozen=True)
class Outcomes:
    """All scores of a task and, for most kinds of task, the items that its main score is computed from."""

    scores: dict[str, float]
    """Scores by name."""
    statistic: str = ""
    """A name in ``STATISTICS``; empty when the task has no items."""
    units: Sequence[int] = ()
    """Number of the unit that each of the n items belongs to."""
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Values per item: n numbers or names in each column."""

    @cached_property
    def _criteria(self) -> int:
        return len(set(self.columns["criterion"]))

    @cached_property
    def _arrays(self) -> Columns:
        """The columns as numbers; a name becomes its index among the distinct names, since only equality matters."""
        arrays = {name: np.asarray(values) for name, values in self.columns.items()}
        return {
            name: np.unique(values, return_inverse=True)[1] if values.dtype.kind == "U" else values
            for name, values in arrays.items()
        }

    def main_score(self, items: NDArray[np.int64]) -> float:
        """Compute the main score of some of the items.

        Args:
            items: Numbers of the items, which may repeat.

        Returns:
            The score; NaN when a criterion has none of these items.
        """
        sampled = {name: values[items] for name, values in self._arrays.items()}
        if "criterion" in sampled and not np.bincount(sampled["criterion"], minlength=self._criteria).all():
            return float("nan")
        return STATISTICS[self.statistic](sampled)


def compute_success_rates(wins: Mapping[str, NDArray[np.bool_]], units: Mapping[str, Sequence[Hashable]]) -> Outcomes:
    """Compute success rates of triplets.

    Args:
        wins: Whether each triplet succeeds, by criterion.
        units: A key of the unit that each triplet belongs to, by criterion.

    Returns:
        One success rate per criterion and their harmonic_mean, in percent, with the triplets.
    """
    scores = {criterion: 100 * float(np.mean(outcomes)) for criterion, outcomes in wins.items()}
    columns: dict[str, list[Any]] = {
        "criterion": [criterion for criterion, outcomes in wins.items() for _ in outcomes],
        "success": [int(won) for outcomes in wins.values() for won in outcomes],
    }
    names = number_names([name for criterion in wins for name in units[criterion]])
    return Outcomes({**scores, "harmonic_mean": harmonic_mean(list(scores.values()))}, "success", names, columns)


def number_names(names: Sequence[Hashable]) -> list[int]:
    """Number names from 0 in order of first appearance; equal names get equal numbers."""
    place = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [place[name] for name in names]


def compute_interval(outcomes: Outcomes) -> tuple[float, float] | None:
    """Compute the 95% interval of a main score by a percentile bootstrap over units.

    Args:
        outcomes: Scores and items of a task.

    Returns:
        Both ends; None when the task has no items or too few of them.
    """
    result = resample_units(outcomes.units, outcomes.main_score) if outcomes.statistic else None
    return None if result is None else result[0]


def resample_units(units: Sequence[int], statistic: Callable[[NDArray[np.int64]], float]) -> Resampled | None:
    """Resample units with replacement; the draws depend only on the number of units.

    Args:
        units: Number of the unit of each item.
        statistic: Computes a score from the numbers of some items.

    Returns:
        The 95% interval of the score, and the score of each of ``RESAMPLES`` draws; None when there are fewer than two units or a
        draw has no finite score.
    """
    from scipy.stats import bootstrap

    order = np.argsort(units, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(np.asarray(units)[order])) + 1) if len(order) else []
    if len(members) < 2:
        return None

    def compute_statistic(sampled: NDArray[np.int64]) -> float:
        return statistic(np.concatenate([members[unit] for unit in sampled]))

    drawing = {"n_resamples": RESAMPLES, "batch": 1, "method": "percentile", "random_state": 0}
    result = bootstrap((np.arange(len(members)),), compute_statistic, vectorized=False, **drawing)
    draws = np.asarray(result.bootstrap_distribution, dtype=np.float64)
    if not np.isfinite(draws).all():
        return None
    return (float(result.confidence_interval.low), float(result.confidence_interval.high)), draws


def find_items_file(folder: Path, key: Sequence[Any]) -> Path:
    """Find the path of a cell's items.

    Args:
        folder: Folder of a results file's items.
        key: The cell's ``key``.

    Returns:
        The path, which need not exist.
    """
    return folder / f"{hashlib.sha256(json.dumps(list(key)).encode()).hexdigest()[:16]}.json"


def save_outcomes(folder: Path, key: Sequence[Any], outcomes: Outcomes) -> None:
    """Save the items of a cell.

    Args:
        folder: Folder of a results file's items; created when missing.
        key: The cell's ``key``.
        outcomes: Scores and items of the cell.
    """
    names = ("model", "model_revision", "task", "data_revision", "vectors", "seed")
    columns = {name: [_round_value(value) for value in np.asarray(values).tolist()] for name, values in outcomes.columns.items()}
    content = {"statistic": outcomes.statistic, "scores": outcomes.scores, "units": list(outcomes.units), "columns": columns}
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(find_items_file(folder, key)) as temporary:
        temporary.write_text(json.dumps(dict(zip(names, key, strict=True)) | content), encoding="utf-8")


def _round_value(value: Any) -> Any:
    return round(value, 7) if isinstance(value, float) else value


def load_outcomes(folder: Path, key: Sequence[Any]) -> Outcomes | None:
    """Load the items of a cell.

    Args:
        folder: Folder of a results file's items.
        key: The cell's ``key``.

    Returns:
        Scores and items of the cell; None when they are not saved.

    Raises:
        InputError: If the file is damaged.
    """
    path = find_items_file(folder, key)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Outcomes(*(content[name] for name in ("scores", "statistic", "units", "columns")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged ({error}). Remove it and measure again.") from error
