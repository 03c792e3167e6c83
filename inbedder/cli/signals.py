"""Ctrl-C and SIGTERM raise an exception, so that a command removes its temporary files; a second signal ends it at once.

An exception that a signal handler raises is lost where a library swallows it: in a bare ``except`` around an import, in
``__del__``, in a callback of ``weakref``. A timer raises it again once nothing holds it and the command still runs.
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
"""Exit codes of Ctrl-C and of SIGTERM: 128 and the signal's number."""
RESIGNAL_INTERVAL_SECONDS = 0.05
"""Time between two checks of whether the exception is still on its way."""


class _Interrupt(KeyboardInterrupt):
    """Ctrl-C, as an instance that takes weak references."""


class _Termination(SystemExit):
    """SIGTERM, likewise."""


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
            if hasattr(signal, "setitimer") and os.getpid() == self.process:  # neither on Windows nor in a forked worker
                signal.signal(signal.SIGALRM, self)
                signal.setitimer(signal.ITIMER_REAL, RESIGNAL_INTERVAL_SECONDS, RESIGNAL_INTERVAL_SECONDS)
        elif self.raised is not None and self.raised() is not None:
            return  # the blocks of ``finally`` are at work
        raise self.new_exception()  # bound to no name: its traceback holds this frame, which would keep it alive

    def new_exception(self) -> BaseException:
        exception = _Interrupt() if self.received == signal.SIGINT else _Termination(TERMINATED)
        self.raised = weakref.ref(exception)
        return exception


@contextmanager
def handle_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt at Ctrl-C and SystemExit(143) at SIGTERM, except where the caller ignores them (``nohup``).

    Raises:
        KeyboardInterrupt: After Ctrl-C.
        SystemExit: With 143, after SIGTERM.
    """
    handler = _Handler()
    if threading.current_thread() is threading.main_thread():  # Python sets handlers in the main thread only
        for number in (signal.SIGINT, signal.SIGTERM):
            if (previous_handler := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                handler.previous_handlers[number] = previous_handler
                signal.signal(number, handler)
    try:
        yield
    finally:
        if handler.received is not None and hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, signal.SIG_IGN)  # one that is under way as well
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for number, previous_handler in handler.previous_handlers.items():
            signal.signal(number, previous_handler)
    if handler.received is not None:
        raise handler.new_exception()
