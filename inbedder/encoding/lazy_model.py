"""A model that is loaded when it is first needed, once, however many threads ask."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from inbedder.encoding.protocols import Encoder


class LazyModel:
    """Loads a model once."""

    def __init__(self, load: Callable[[], Encoder]) -> None:
        """Load nothing yet."""
        self._load, self._lock = load, Lock()
        self.loaded: Encoder | None = None
        """The model, once it is loaded."""

    def get(self) -> Encoder:
        """Return the model; the first call loads it."""
        with self._lock:
            if self.loaded is None:
                self.loaded = self._load()
            return self.loaded

    def wrap(self, wrap_model: Callable[[Encoder], Encoder]) -> LazyModel:
        """Return a variant that shares this model's weights and loads them when either is needed."""
        return LazyModel(lambda: wrap_model(self.get()))
