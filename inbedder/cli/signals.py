"""Ctrl-C and SIGTERM raise an exception, so that a command removes its temporary files; a second signal ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes of Ctrl-C and of SIGTERM: 128 and the signal's number."""


@contextmanager
def handle_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt at Ctrl-C and SystemExit(143) at SIGTERM, except where the caller ignores them (``nohup``)."""
    numbers = signal.SIGINT, signal.SIGTERM
    handlers = {number: handler for number in numbers if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)}

    def raise_exception(number: int, _frame: FrameType | None) -> None:
        for handled in handlers:
            signal.signal(handled, signal.SIG_DFL)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(TERMINATED)

    if threading.current_thread() is not threading.main_thread():  # Python sets handlers in the main thread only
        handlers = {}
    for number in handlers:
        signal.signal(number, raise_exception)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
