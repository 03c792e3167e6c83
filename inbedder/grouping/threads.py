"""The number of threads: on few rows, threads cost more time than they save."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

MIN_ROWS_FOR_THREADS = 20_000
"""Minimum number of rows that several threads group or lay out in less time than one."""


@contextmanager
def limit_threads(rows: int) -> Iterator[None]:
    """Let numpy and scikit-learn compute with one thread on few rows.

    Args:
        rows: Number of rows.

    Yields:
        Nothing.
    """
    if rows >= MIN_ROWS_FOR_THREADS:
        yield
        return
    with threadpool_limits(1):
        yield
