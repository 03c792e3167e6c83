"""What transformers prints while it loads a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silence_transformers(expected_gaps: bool) -> Iterator[None]:
    """Hide transformers' progress bar within the block, and its report of missing weights if gaps are expected."""
    from transformers.utils import logging

    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    if expected_gaps:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
