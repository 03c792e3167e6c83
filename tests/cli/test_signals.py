"""Ctrl-C and SIGTERM end a command even if a library swallows the exception."""

import os
import signal
import time

import pytest

from inbedder.cli.signals import TERMINATED, handle_signals

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows sends no POSIX signals")
EXCEPTIONS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: SystemExit}


@pytest.mark.parametrize("number", EXCEPTIONS)
def test_signal_raises_and_handlers_return(number):
    before = signal.getsignal(number)
    with pytest.raises(EXCEPTIONS[number]) as error, handle_signals():
        os.kill(os.getpid(), number)
        time.sleep(5)
    assert signal.getsignal(number) is before
    if number == signal.SIGTERM:
        assert error.value.code == TERMINATED


@pytest.mark.parametrize("number", EXCEPTIONS)
def test_swallowed_signal_is_raised_again(number):
    is_done = False
    with pytest.raises(EXCEPTIONS[number]), handle_signals():
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        except BaseException:  # as a library does around an import
            pass
        time.sleep(30)
        is_done = True
    assert not is_done


@pytest.mark.parametrize("code", [None, 0])
def test_swallowed_signal_at_the_end_is_raised(code):
    with pytest.raises(KeyboardInterrupt), handle_signals():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            pass
        if code is not None:
            raise SystemExit(code)  # as typer ends a command


def test_a_swallowed_and_kept_signal_is_raised_at_the_end():
    exceptions = []
    with pytest.raises(SystemExit) as error, handle_signals():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except SystemExit as swallowed:
            exceptions.append(swallowed)
        raise SystemExit(0)
    assert error.value.code == TERMINATED


def test_cleanup_is_not_interrupted():
    cleaned = False
    with pytest.raises(KeyboardInterrupt), handle_signals():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        finally:
            time.sleep(0.3)
            cleaned = True
    assert cleaned


def test_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with handle_signals():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
