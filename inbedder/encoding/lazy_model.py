"""A model that is loaded on first use, once for all threads."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from inbedder.encoding.protocols import Encoder


class LazyModel:
    """A model that is loaded on first use."""

    def __init__(self, load: Callable[[], Encoder]) -> None:
        """Set the function that loads the model."""
        self._load, self._lock = load, Lock()
        self.loaded: Encoder | None = None
        """The model; None until it is loaded."""

    def get(self) -> Encoder:
        """Return the model. The first call loads it."""
        with self._lock:
            if self.loaded is None:
                self.loaded = self._load()
            return self.loaded

    def wrap(self, wrap_model: Callable[[Encoder], Encoder]) -> LazyModel:
        """Return a lazy variant of the model, which shares the weights and loads them with whichever is used first."""
        return LazyModel(lambda: wrap_model(self.get()))
