"""Handling of Ctrl-C and SIGTERM: both raise an exception, so that a command removes its temporary files.

A second signal ends the command at once. A library may swallow the exception: in a bare ``except`` around an import, in
``__del__``, or in a ``weakref`` callback. A timer raises it again if nothing refers to it and the command still runs.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes of Ctrl-C and SIGTERM: 128 plus the signal's number."""
RESIGNAL_INTERVAL_SECONDS = 0.05
"""Interval of the checks whether the exception was swallowed."""


class _Interrupt(KeyboardInterrupt):
    """The exception of Ctrl-C, which supports weak references."""


class _Termination(SystemExit):
    """The exception of SIGTERM, which supports weak references."""


class _Handler:
    def __init__(self) -> None:
        self.process = os.getpid()
        self.previous_handlers: dict[signal.Signals, Any] = {}
        self.received: int | None = None
        self.raised: weakref.ref[BaseException] | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if number in self.previous_handlers:
            self.received = number
            for handled in self.previous_handlers:
                signal.signal(handled, signal.SIG_DFL)
            if hasattr(signal, "setitimer") and os.getpid() == self.process:  # not on Windows, nor in a forked worker
                signal.signal(signal.SIGALRM, self)
                signal.setitimer(signal.ITIMER_REAL, RESIGNAL_INTERVAL_SECONDS, RESIGNAL_INTERVAL_SECONDS)
        elif self.raised is not None and self.raised() is not None:
            return  # ``finally`` blocks are running
        raise self.make_exception()  # without a name, which would keep it alive through its traceback

    def make_exception(self) -> BaseException:
        exception = _Interrupt() if self.received == signal.SIGINT else _Termination(TERMINATED)
        self.raised = weakref.ref(exception)
        return exception


@contextmanager
def handle_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C and SystemExit(143) on SIGTERM, unless the caller ignores the signal (``nohup``)."""
    handler = _Handler()
    if threading.current_thread() is threading.main_thread():  # Python sets handlers only in the main thread
        for number in (signal.SIGINT, signal.SIGTERM):
            if (previous_handler := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                handler.previous_handlers[number] = previous_handler
                signal.signal(number, handler)
    try:
        yield
    finally:
        if handler.received is not None and hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, signal.SIG_IGN)  # also discards a pending alarm
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for number, previous_handler in handler.previous_handlers.items():
            signal.signal(number, previous_handler)
        if handler.received is not None:  # also when the exception was swallowed, and the command ended with another
            raise handler.make_exception()
