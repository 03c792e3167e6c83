"""What transformers and huggingface_hub print while they load or download a model."""

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


@contextmanager
def silence_gguf_bar() -> Iterator[None]:
    """Let ``silence_transformers`` hide the progress bar of transformers' GGUF reader, too, within the block."""
    from transformers import modeling_gguf_pytorch_utils as gguf_reader
    from transformers.utils import logging

    bar = gguf_reader.tqdm
    gguf_reader.tqdm = logging.tqdm
    try:
        yield
    finally:
        gguf_reader.tqdm = bar


@contextmanager
def silence_hub() -> Iterator[None]:
    """Hide the progress bars of huggingface_hub, and its warnings of each attempt, within the block."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, logging

    level, has_bars = logging.get_verbosity(), not are_progress_bars_disabled()
    disable_progress_bars()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bars:
            enable_progress_bars()
