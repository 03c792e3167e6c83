"""Models in forked processes: ``multiprocessing``, ``map`` of datasets, pre-fork servers.

Only the thread that forks exists in the child. Thread pools do not know that: a child that computes with the OpenMP threads of
its parent (torch, scikit-learn) waits for them for ever. With one thread it needs none of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from weakref import WeakMethod

import torch
from threadpoolctl import threadpool_limits


@cache
def limit_threads_after_fork() -> None:
    """Let every process that is forked from this one compute in one thread; repeated calls have no effect."""
    _register(_limit_threads)


def call_after_fork(method: Callable[[], None]) -> None:
    """Call a method in every process that is forked from this one, as long as its object exists.

    Args:
        method: A bound method that replaces what does not survive a fork, such as a thread or a lock.

    Example:
        >>> class Counter:
        ...     def reset(self) -> None:
        ...         self.count = 0
        >>> counter = Counter()
        >>> call_after_fork(counter.reset)
    """
    reference = WeakMethod(method)

    def call() -> None:
        bound_method = reference()
        if bound_method is not None:
            bound_method()

    _register(call)


def _register(function: Callable[[], None]) -> None:
    if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
        os.register_at_fork(after_in_child=function)


def _limit_threads() -> None:
    torch.set_num_threads(1)
    threadpool_limits(1)
