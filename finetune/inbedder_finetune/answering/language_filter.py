"""The language filter of a run, from parallel texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from inbedder.backbones.late_interaction import LANGUAGE_FILTER, add_language_filter, find_language_directions
from inbedder.cache.store import Store
from inbedder.encoding.reencode import reencode
from inbedder.errors import RecipeError
from inbedder.io.tables import read_rows

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from inbedder_finetune.answering.answering_recipe import Languages

COLUMNS = ("input", "language", "corpus")


def fit_language_filter(model: PreTrainedModel, name: str, languages: Languages, cache: str | None) -> None:
    """Add a language filter to a model, with the directions of a file's languages.

    Args:
        model: The model, with a gate.
        name: Its hub id or folder.
        languages: Path of the file, and number of directions.
        cache: Folder of cached vectors; None caches nothing.

    Raises:
        RecipeError: If the file lacks a column, or has too few languages.
    """
    rows = read_rows(languages.path)
    if not rows or any(row.get(column) in (None, "") for row in rows for column in COLUMNS):
        raise RecipeError(f"Each row of languages.path={languages.path} needs the columns {', '.join(COLUMNS)}.")
    texts, names, corpora = ([str(row[column]) for row in rows] for column in COLUMNS)
    possible = len(set(zip(corpora, names, strict=True))) - len(set(corpora))
    if languages.directions > possible:
        raise RecipeError(
            f"{languages.path} has languages for {possible} directions: set languages.directions to that number or fewer."
        )
    store = None if cache is None else Store(cache)
    vectors = torch.from_numpy(np.asarray(reencode([(text,) for text in texts], name, store=store), dtype=np.float32))
    mean, directions = find_language_directions(vectors, names, corpora, languages.directions)
    language_filter = add_language_filter(model, languages.directions)
    language_filter.mean.copy_(mean)
    language_filter.directions.copy_(directions)


@torch.no_grad()
def filter_languages(model: PreTrainedModel, targets: Tensor) -> Tensor:
    """Filter target vectors as the text's own vectors are, if the model has a language filter.

    Args:
        model: The model of the run.
        targets: float16, shape (targets, d).

    Returns:
        float16, shape (targets, d), of length 1 if they are filtered.
    """
    language_filter = getattr(model, LANGUAGE_FILTER, None)
    if language_filter is None:
        return targets
    return torch.nn.functional.normalize(language_filter(targets.float()), dim=-1).half()
