"""The number of threads of each kind of work, decided in one place.

Threads that share an operation wait for each other at its end, and all of them for one whose core another program uses. So the
batches of a model are computed side by side, each in threads of its own, work on few rows is computed in one thread, and work on
many in all threads. What the user sets (``OMP_NUM_THREADS``, ``torch.set_num_threads``) is the maximum.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

MIN_ROWS_FOR_THREADS = 20_000
"""Minimum number of rows that several threads group or lay out in less time than one."""
MIN_MULTIPLICATIONS_FOR_THREADS = 2 * 10**10
"""Minimum number of multiplications of a pass (tokens times parameters) for which a server uses several threads."""
MAX_SIDE_BY_SIDE = 4
"""Maximum number of batches at a time: each holds memory, and Python runs one thread at a time between operations."""
CPU_QUOTA_FILE = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of CPU time that the control group may use in a period, and the period; containers set it."""
T = TypeVar("T")
R = TypeVar("R")


def count_threads() -> int:
    """Count the threads that this process may use.

    Returns:
        torch's number of threads, which the user may set, else at most the CPUs that the system grants this process (affinity
        and the quota of its control group).

    Example:
        >>> count_threads() >= 1
        True
    """
    import torch

    threads: int = torch.get_num_threads()
    return threads if threads == 1 or "OMP_NUM_THREADS" in os.environ else max(1, min(threads, _count_cpus()))


@cache
def _count_cpus() -> int:
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        cpus = os.process_cpu_count() or 1
    else:
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = CPU_QUOTA_FILE.read_text(encoding="ascii").split()
        return min(cpus, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no control group, or "max"
        return cpus


@contextmanager
def limit_threads(rows: int) -> Iterator[None]:
    """Let numpy and scikit-learn compute few rows with one thread, and many with those of ``count_threads``."""
    controller = ThreadpoolController()
    limit = 1 if rows < MIN_ROWS_FOR_THREADS else count_threads()
    with controller.limit(limits={pool["prefix"]: min(pool["num_threads"], limit) for pool in controller.info()}):
        yield


def map_side_by_side(function: Callable[[T], R], batches: Sequence[T]) -> Iterator[R]:
    """Apply a function to batches, several at a time, each in an equal share of the threads; the last few get all threads.

    Args:
        function: Computes with torch on a CPU; several threads call it at the same time.
        batches: The batches.

    Yields:
        The results, in the order of the batches.

    Example:
        >>> list(map_side_by_side(len, ["a", "bc", "def"]))
        [1, 2, 3]
    """
    threads = count_threads()
    workers = max(1, min(threads, len(batches), MAX_SIDE_BY_SIDE))

    def compute(batch: T, threads: int) -> R:
        with _limit_operations(threads):
            return function(batch)

    parallel_count = len(batches) - len(batches) % workers if workers > 1 else 0
    if parallel_count:
        with ThreadPoolExecutor(workers, thread_name_prefix="batch") as pool:

            def submit(batch: T) -> Future[R]:
                return pool.submit(copy_context().run, compute, batch, threads // workers)

            pending = deque(submit(batch) for batch in batches[: workers + 1][:parallel_count])
            try:
                for number in range(parallel_count):
                    result = pending.popleft().result()
                    if number + workers + 1 < parallel_count:
                        pending.append(submit(batches[number + workers + 1]))
                    yield result
            finally:
                pool.shutdown(cancel_futures=True)
    for batch in batches[parallel_count:]:
        yield compute(batch, threads)


@contextmanager
def limit_threads_of_pass(multiplications: int) -> Iterator[None]:
    """Let torch compute a small pass (tokens times parameters) with one thread, and a large one with ``count_threads``."""
    with _limit_operations(1 if multiplications < MIN_MULTIPLICATIONS_FOR_THREADS else count_threads()):
        yield


@contextmanager
def _limit_operations(threads: int) -> Iterator[None]:
    """Limit the threads of each of torch's operations in this thread; torch's own setting would apply to all threads."""
    import torch

    if torch.get_num_threads() <= threads:  # this also starts the thread's own count
        yield
        return
    with _find_openmp().limit(limits=threads):
        yield


@cache
def _find_openmp() -> Any:
    """Find OpenMP, which torch has loaded by now."""
    return ThreadpoolController().select(user_api="openmp")
