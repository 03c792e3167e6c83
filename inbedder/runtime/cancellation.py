"""Cancellation of long work: loops call ``check_cancelled`` between their steps, and a caller's check raises to end them."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

CANCELLATION_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("cancellation_check", default=None)
"""A function that raises an error when the work of this context is no longer needed."""


def check_cancelled() -> None:
    """Call the check of this context, which raises an error to end the work.

    Example:
        >>> from inbedder.runtime.cancellation import check_cancelled
        >>> check_cancelled()  # no check is set, so nothing happens
    """
    check = CANCELLATION_CHECK.get()
    if check is not None:
        check()
