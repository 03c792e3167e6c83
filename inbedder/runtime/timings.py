"""Wall time of the stages of a call: loading, tokenizing, model, groups, page.

A stage inside another one stops the outer's clock, so the seconds of all stages add up to the time of the call. Stages are timed
in the thread that waits for them: texts that are tokenized while the model computes cost no time.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
OTHER = "other"


class Timings:
    """Seconds by stage."""

    def __init__(self) -> None:
        """Start the clock of what belongs to no stage."""
        self.seconds: dict[str, float] = defaultdict(float)
        self._stages = [OTHER]
        self._since = time.perf_counter()

    def enter(self, stage: str) -> None:
        """Stop the clock of the current stage and start another."""
        self._add_seconds()
        self._stages.append(stage)

    def leave(self) -> None:
        """Return to the stage before."""
        self._add_seconds()
        self._stages.pop()

    def describe(self) -> str:
        """Describe the seconds of all stages in the order of their first end, and their sum."""
        self._add_seconds()
        parts = [f"{stage} {seconds:.1f}" for stage, seconds in self.seconds.items() if stage != OTHER]
        return f"Seconds: {', '.join([*parts, f'{OTHER} {self.seconds[OTHER]:.1f}'])}; {sum(self.seconds.values()):.1f} in all."

    def _add_seconds(self) -> None:
        current_time = time.perf_counter()
        self.seconds[self._stages[-1]] += current_time - self._since
        self._since = current_time


TIMINGS: ContextVar[Timings | None] = ContextVar("timings", default=None)
"""The timings of this call, if they are wanted."""


@contextmanager
def time_stage(stage: str) -> Iterator[None]:
    """Count the time of a block as a stage's, if timings are wanted.

    Args:
        stage: Its name.

    Yields:
        Nothing.

    Example:
        >>> with time_stage("model"):
        ...     vectors = [0.0]
    """
    timings = TIMINGS.get()
    if timings is None:
        yield
        return
    timings.enter(stage)
    try:
        yield
    finally:
        timings.leave()


def time_items(items: Iterable[T], stage: str) -> Iterator[T]:
    """Yield items that are computed one by one, and count the time until each as the stage's."""
    iterator = iter(items)
    while True:
        with time_stage(stage):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
