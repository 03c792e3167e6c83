"""Ctrl-C and SIGTERM: both become an exception, so that temporary files are removed, and neither can get lost.

An exception that a signal handler raises dies where a library swallows it: in a bare ``except`` while it is imported, in
``__del__`` or in a callback of ``weakref``. So the exception is watched: once nobody holds it and the program goes on, it is
raised again.
"""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes of Ctrl-C and of SIGTERM: 128 and the signal's number."""
AGAIN = 0.05
"""Seconds between two looks at whether the exception is still on its way."""
_HANDLED = ("SIGINT", "SIGTERM", "SIGALRM")


class _Interrupted(KeyboardInterrupt):
    """Ctrl-C, as an object that can be watched (a KeyboardInterrupt itself takes no weak reference)."""


class _Terminated(SystemExit):
    """SIGTERM, likewise."""


class _Ends:
    def __init__(self) -> None:
        self.process = os.getpid()
        self.raised: weakref.ref[BaseException] | None = None
        self.number = 0

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """End as Ctrl-C does; a second SIGTERM ends at once."""
        if number == getattr(signal, "SIGALRM", None):
            if self.raised is not None and self.raised() is not None:
                return  # on its way: what stands in finally is given its time
        else:
            self.number = number
        if self.number == signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if hasattr(signal, "setitimer") and os.getpid() == self.process:  # neither on Windows nor in a forked worker
            signal.setitimer(signal.ITIMER_REAL, AGAIN, AGAIN)
        raise self.watched()  # by no name here: its traceback holds this frame, which would hold it

    def watched(self) -> BaseException:
        stop = _Interrupted() if self.number == signal.SIGINT else _Terminated(TERMINATED)
        self.raised = weakref.ref(stop)
        return stop


@contextmanager
def ends() -> Iterator[None]:
    """See to it that a Ctrl-C or a SIGTERM within ends the block, and that the caller hears of it even when the work was done.

    Outside of the main thread, where Python takes no handlers, and for a signal that the caller has it ignore (``nohup``, a
    background job of a shell), nothing changes.

    Raises:
        KeyboardInterrupt: At Ctrl-C.
        SystemExit: With 143, at SIGTERM.
    """
    watch = _Ends()
    before = {}
    try:
        for number in [getattr(signal, name) for name in _HANDLED if hasattr(signal, name)]:
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, watch.handle)
    except ValueError:  # not in the main thread
        before = {}
    try:
        yield
    except SystemExit as stop:
        if stop.code or watch.raised is None:
            raise
    finally:
        if before and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if watch.raised is not None:
        raise watch.watched()
