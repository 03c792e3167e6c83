"""The model of an index: which one it is, and the vectors that it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.cache import Store
from inbedder.embedder import InBedder
from inbedder.errors import InputError, shown
from inbedder.prompting import resolve_instruction
from inbedder.search.rows import INSTRUCTED
from inbedder.vectors import Vectors, row_cosines, unit

SETTINGS = ("pooling", "layer", "max_length", "truncation_side", "subtract_instruction", "add_generic", "beside")
"""What ``InBedder`` takes that changes vectors, beside model, revision and template."""
BEFORE = {"add_generic": False}
"""How a model was read by indexes of before, which do not say it."""


def about(model: InBedder) -> dict[str, Any]:
    """What decides a model's vectors.

    Args:
        model: The model.

    Returns:
        Name, revision and settings, as json takes them.
    """
    settings = {
        "pooling": model.pooling,
        "layer": model.layer,
        "max_length": model.tokenizer.max_length,
        "truncation_side": model.tokenizer.truncation_side,
        "subtract_instruction": model.subtract_instruction,
        "add_generic": model.add_generic,
        "beside": "none" if model.beside is None else model.beside.name,
        "template": model.template.pattern,
    }
    generic = model if model.generic is None else model.generic
    return {"model": model.name, "revision": model.revision, "generic": generic.revision, "settings": settings}


def load(known: Mapping[str, Any]) -> InBedder:
    """Load the model of an index.

    Args:
        known: What ``about`` said when it was built.

    Returns:
        The model.

    Raises:
        InputError: When what goes by that name now is another model.
        ModelError: When it cannot be loaded.
    """
    settings = BEFORE | known["settings"]
    model = InBedder(known["model"], **{name: settings.get(name) for name in SETTINGS})
    check(model, known)
    return model


def check(model: InBedder, known: Mapping[str, Any]) -> None:
    """Refuse another model than the one that an index was built with.

    Args:
        model: A model.
        known: What ``about`` said of the one of the index.

    Raises:
        InputError: When it is another, or is read in another way.
    """
    found = about(model)
    if (found["revision"], found["generic"]) != (known["revision"], known["generic"]):
        raise InputError(
            f"The index was built with {shown(known['model'])} (revision {known['revision']}), and this model is "
            f"{shown(found['model'])} (revision {found['revision']}). Open it with the first, or build a new index."
        )
    settings = BEFORE | known["settings"]
    if others := [name for name, value in sorted(settings.items()) if found["settings"].get(name) != value]:
        told = ", ".join(f"{name}={shown(settings[name])}" for name in others)
        raise InputError(f"The index was built with {told}. Pass a model with these settings, or build a new index.")


def keeping(model: InBedder, folder: Path) -> InBedder:
    """The same model, whose vectors and answers are kept.

    Args:
        model: A model; one that has a cache already keeps it.
        folder: Where the cache lies otherwise.

    Returns:
        The model, its weights shared.
    """
    if model.store is not None or model.revision == "unknown":
        return model
    try:
        store = Store(folder)
    except InputError:  # the index can be read and not written to
        return model
    other = copy(model)
    other.store = store
    if model.generic is not None:
        generic = copy(model.generic)
        generic.store = store
        other.__dict__["generic"] = generic
    if model.beside is not None:
        other.beside = copy(model.beside)
        other.beside.store = store
    return other


def generic_vectors(model: InBedder, texts: Sequence[str], show_progress_bar: bool | None = None) -> Vectors:
    """Vectors that know no instruction: of the model's base, where it has one.

    Args:
        model: The model.
        texts: n texts.
        show_progress_bar: As for ``InBedder.encode``.

    Returns:
        float32 of length 1, shape (n, k).
    """
    return unit(model.encode(list(texts), show_progress_bar=show_progress_bar))


def instructed_vectors(model: InBedder, texts: Sequence[str], instruction: str, show_progress_bar: bool | None = None) -> Vectors:
    """Vectors under an instruction.

    Args:
        model: The model.
        texts: n texts.
        instruction: A question, or ``@name``.
        show_progress_bar: As for ``InBedder.encode``.

    Returns:
        float32 of length 1, shape (n, d).
    """
    return unit(model.encode(list(texts), resolve_instruction(instruction), show_progress_bar=show_progress_bar))


def column_of(instruction: str) -> str:
    """The column of the vectors under an instruction.

    Args:
        instruction: A question, or ``@name``.

    Returns:
        A name made of a hash of the question.
    """
    return INSTRUCTED + blake2b(resolve_instruction(instruction).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def instructed_scores(model: InBedder, query: str, texts: Sequence[str], instruction: str) -> NDArray[np.float64]:
    """How near texts are to a query in what is asked.

    Args:
        model: The model.
        query: What is searched for.
        texts: n texts.
        instruction: A question, or ``@name``.

    Returns:
        Cosines, shape (n,).
    """
    vectors = instructed_vectors(model, [query, *texts], instruction, False)
    return row_cosines(vectors[1:], np.broadcast_to(vectors[0], vectors[1:].shape))
