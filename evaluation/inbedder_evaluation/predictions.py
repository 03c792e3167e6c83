"""Predicted similarities in the format in which the authors of C-STS take submissions for their hidden test labels.

A submission is a json file with one number per row of the test file, by the row's index: {"0": 0.71, "1": 0.2, ...}. The authors'
``make_test_submission.py`` (https://github.com/princeton-nlp/c-sts) sends it with an email address, to which they answer with the
scores: python make_test_submission.py EMAIL predictions.json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from inbedder.errors import InputError
from inbedder.io.files import atomic_write
from inbedder.vectors.vectors import check_finite
from inbedder_evaluation.embedders import Embedder
from inbedder_evaluation.tasks.conditional_sts import ConditionalSTS
from inbedder_evaluation.tasks.task import Task


def predict_similarities(embedders: Sequence[Embedder], tasks: Sequence[Task], path: Path) -> str:
    """Predict the similarity of each row of a table of C-STS, and write them.

    Args:
        embedders: The variants of one model; the first that reads conditions predicts.
        tasks: The selected tasks; the first one is predicted.
        path: The .json file to write.

    Returns:
        A sentence that says what was written.

    Raises:
        InputError: If the first task is not conditional similarity.
    """
    embedder, task = next((one for one in embedders if one.instructed), embedders[0]), tasks[0]
    if not isinstance(task, ConditionalSTS):
        raise InputError(f"Predictions are of the rows of C-STS, not of {task.info.name}. Give its file as --data.")
    scores = task.compute_cosines(embedder.encode) if embedder.similarity is None else task.score_pairs(embedder.similarity)
    write_predictions(check_finite(scores[:, None])[:, 0].tolist(), path)
    return f"Written: {path}, {len(scores)} predictions of {embedder.name} for {task.info.name}."


def write_predictions(scores: Sequence[float], path: Path) -> None:
    """Write a submission.

    Args:
        scores: One per row, in the order of the file.
        path: The .json file.
    """
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps({str(row): score for row, score in enumerate(scores)}) + "\n", encoding="utf-8")
