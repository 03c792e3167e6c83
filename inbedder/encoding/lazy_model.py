"""A model that is loaded when it is first needed, once, however many threads ask."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inbedder.embedder import InBedder


class LazyModel:
    """Loads a model once."""

    def __init__(self, load: Callable[[], InBedder]) -> None:
        """Load nothing yet.

        Args:
            load: Gives the model.
        """
        self._load, self._lock = load, Lock()
        self.loaded: InBedder | None = None
        """The model, once it is loaded."""

    def get(self) -> InBedder:
        """Return the model, and load it where nobody has done so.

        Returns:
            The same model to every caller.
        """
        with self._lock:
            if self.loaded is None:
                self.loaded = self._load()
            return self.loaded

    def changed(self, change: Callable[[InBedder], InBedder]) -> LazyModel:
        """Return a variant that shares this model's weights and loads them when either is needed.

        Args:
            change: Gives the variant of the loaded model.

        Returns:
            The variant.
        """
        return LazyModel(lambda: change(self.get()))
