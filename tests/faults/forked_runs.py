"""Runs of the command line in forked processes, and the signal that ends one."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.campaign import Fault, Lost, NotPossible
from tests.faults.stage import ROOT

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
"""Exit codes that are documented."""
PRELOADED = [
    *("inbedder.cli.app", "inbedder.embedder", "inbedder.io.outputs", "inbedder.io.tables", "inbedder.grouping.clustering"),
    *("inbedder.grouping.report.page", "inbedder.backbones.families", "transformers.models.opt.modeling_opt", "pyarrow.parquet"),
    *(
        "inbedder_finetune.answering.train_answering",
        "inbedder_finetune.registry",
        "sklearn.cluster",
        "sklearn.feature_extraction.text",
    ),
]
ATTEMPTS = 12
PATIENCE = 300.0
"""Seconds after which a run is taken for stuck."""


@dataclass(frozen=True)
class Done:
    """A run that has ended."""

    code: int | None
    """Its exit code; None for one that was stuck."""
    seconds: float
    """From its first moment."""
    output: str
    """What it printed."""
    was_working: bool = False
    """Whether a signal was sent before its work had ended."""


def run_inbedder(arguments: list[str], log_path: str, ready_end: Any, most_bytes: int | None) -> None:
    """In a forked process: the command line as ``inbedder`` runs it.

    Args:
        arguments: Of the command line.
        said: File of what it prints.
        ready_end: Told when it begins, and the time at which its work ended: a busy machine may report both late.
        most_bytes: Largest file that it may write; None for any.
    """
    os.chdir(ROOT)
    descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.argv = ["inbedder", *arguments]
    if most_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    from inbedder.cli.app import main

    code: Any = 0
    for number in (signal.SIGINT, signal.SIGTERM):  # until main takes them, and after it: as a shell reports it
        signal.signal(number, lambda signal_number, _frame: os._exit(128 + signal_number))
    ready_end.send_bytes(b"1")
    try:
        main()
    except SystemExit as stop:
        code = stop.code or 0
    ready_end.send(time.monotonic())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def catches(process: int, signal_sent: int) -> bool:
    """Whether a process has a handler of its own for a signal (Linux).

    Args:
        process: Its number.
        sent: The signal.

    Returns:
        True from the moment at which the handler stands.
    """
    with suppress(OSError):
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
        signal_number = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
        return bool(int(signal_number, 16) >> (signal_sent - 1) & 1)
    return False


def end_one(fault: Fault, signal_sent: int, seconds: float, attempt: Callable[[float], Done]) -> Done:
    """Try until the signal comes while a run works: one that was faster than the signal is no fault, and tells how fast runs are.

    Args:
        fault: Decides at which share of a run the signal comes.
        sent: The signal.
        seconds: How long a run takes.
        attempt: Begins anew and sends the signal after so many seconds.

    Returns:
        The run that was ended.

    Raises:
        Lost: When a run took no notice of the signal.
        NotPossible: When runs are always faster.
    """
    share = fault.draw.random()
    for _ in range(ATTEMPTS):
        moment = share * seconds
        run = attempt(moment)
        if run.code != 0:
            fault.note(f"{signal.Signals(signal_sent).name} after {moment:.3f} of {seconds:.3f} s")
            return run
        if run.was_working:
            raise Lost(
                f"{signal.Signals(signal_sent).name} after {moment:.3f} of {run.seconds:.3f} s had no effect: {run.output[-300:]}"
            )
        seconds = 0.8 * min(seconds, run.seconds)
    raise NotPossible("some runs ended before the signal")
