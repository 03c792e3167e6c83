"""Models by name for other packages, whose objects are copied, cloned and pickled: each name is loaded once."""

from __future__ import annotations

import os
from functools import lru_cache

from inbedder.embedder import InBedder


def loaded(model: str | os.PathLike[str] | InBedder, cache: str | os.PathLike[str] | None = None) -> InBedder:
    """A model by name, loaded once, or one that is loaded already.

    Args:
        model: An ``InBedder``, or a name as it takes it.
        cache: A folder that keeps vectors, as ``InBedder`` takes it; for a name.

    Returns:
        The model.
    """
    return model if isinstance(model, InBedder) else _named(os.fspath(model), None if cache is None else os.fspath(cache))


@lru_cache(maxsize=4)
def _named(name: str, cache: str | None) -> InBedder:
    return InBedder(name, cache=cache)
