"""Kills before a file operation, and processes that write one folder together.

A kill at a random time seldom comes between two writes of a small folder. Here it comes before the n-th operation on a file of
the folder: opening, renaming, removing or making one.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.campaign import Fault, Kind, Lost, NotPossible, UndetectedError
from tests.faults.forked_runs import PATIENCE
from tests.faults.stage import INSTRUCTION, Stage, load

OPERATIONS = {"open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate"}
"""Python's audit events of files."""
SAVES = 25
"""Times each of two processes saves a grouping."""
JOB = {"inbedder": "1", "instruction": INSTRUCTION}


class FolderKills:
    """Writers of folders that are killed before a file operation, and writers that meet."""

    def __init__(self, stage: Stage, context: ForkServerContext) -> None:
        """Save two groupings of the same texts.

        Args:
            stage: The models and the texts.
            context: Starts processes.
        """
        from inbedder import cluster

        self.stage, self.context = stage, context
        self.groupings = [stage.folder / f"grouping-{k}" for k in (2, 3)]
        model = load(stage.models["opt"])
        for k, folder in zip((2, 3), self.groupings, strict=True):
            cluster(stage.texts[:60], INSTRUCTION, model, k=k).save(folder)
        self.num_operations: dict[str, int] = {}

    def kinds(self) -> list[Kind]:
        """The kinds of faults, and how many of each."""
        kinds = [
            Kind(f"kill between the files of {name}", count, lambda fault, name=name: self.kill(fault, name))
            for name, count in (("a first save", 40), ("a second save", 40), ("a job", 24), ("an export", 16), ("an output", 16))
        ]
        return [*kinds, Kind("two savers of one grouping", 8, self.race)]

    def kill(self, fault: Fault, name: str) -> None:
        """Kill a writer before a random file operation; the same call made again leaves what an undisturbed one leaves."""
        target = fault.folder / "target"
        if name not in self.num_operations:
            self._prepare(name, target)
            code, self.num_operations[name] = self._run(name, target, None)
            if code != 0:
                raise Lost(f"an undisturbed run ended with {code}")
            shutil.rmtree(target)
        at = fault.draw.randrange(self.num_operations[name])
        fault.note(f"SIGKILL before file operation {at} of {self.num_operations[name]}")
        self._prepare(name, target)
        expected = set(os.listdir(target)) if name == "a second save" else set()
        code, _ = self._run(name, target, at)
        if code == 0:
            raise NotPossible("some runs had fewer file operations")
        if expected:
            self._check_grouping(target)
        code, _ = self._run(name, target, None)
        if code != 0:
            raise Lost(f"the same call made again ended with {code}")
        self._check(name, target)
        leftovers = [str(path.relative_to(fault.folder)) for path in fault.folder.rglob(".*")]
        if leftovers:
            raise Lost(f"{leftovers} left over after the second run")

    def _prepare(self, name: str, target: Path) -> None:
        if name == "a second save":
            shutil.copytree(self.groupings[1], target)
        elif name == "an output":
            target.mkdir()

    def _run(self, name: str, target: Path, at: int | None) -> tuple[int | None, int]:
        """Write in a forked process; return its exit code and how many file operations it made."""
        source = str(self.stage.models["opt"] if name == "an export" else self.groupings[0])
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=write_and_count, args=(name, source, str(target), at, sender))
        process.start()
        sender.close()
        try:
            count = receiver.recv() if receiver.poll(PATIENCE) else 0
        except EOFError:  # killed, or failed
            count = 0
        process.join(PATIENCE)
        return process.exitcode, count

    def _check(self, name: str, target: Path) -> None:
        if name.endswith("save"):
            self._check_grouping(target, self.groupings[:1])
            if len(list(target.iterdir())) != 5:
                raise Lost(f"{sorted(os.listdir(target))} left over")
        elif name == "a job":
            write_and_count(name, "", str(target), None, None)
        elif name == "an export":
            if not (target / "modules.json").is_file():
                raise Lost("the export lacks modules.json")
        elif not np.array_equal(np.load(target / "vectors.npy", allow_pickle=False), np.eye(4, dtype=np.float32)):
            raise UndetectedError("the output is another one")

    def _check_grouping(self, target: Path, allowed: list[Path] | None = None) -> None:
        from inbedder import Grouping

        grouping = Grouping.load(target)
        for folder in allowed or self.groupings:
            candidate = Grouping.load(folder)
            if grouping.names == candidate.names and np.array_equal(grouping.centres, candidate.centres):
                return
        raise UndetectedError("the folder holds another grouping than those that were saved")

    def race(self, fault: Fault) -> None:
        """Save two groupings in one folder from two processes, and read it in this one: each read gives one of them whole."""
        target = fault.folder / "target"
        shutil.copytree(self.groupings[0], target)
        savers = [self.context.Process(target=save_often, args=(str(folder), str(target))) for folder in self.groupings]
        for saver in savers:
            saver.start()
        num_reads = 0
        while any(saver.is_alive() for saver in savers):
            self._check_grouping(target)
            num_reads += 1
        fault.note(f"{num_reads} reads")
        if codes := [saver.exitcode for saver in savers if saver.exitcode != 0]:
            raise Lost(f"savers ended with {codes}")
        self._check_grouping(target)
        if len(list(target.glob("*.npy"))) != 4:
            raise Lost(f"{sorted(os.listdir(target))} left over")


def save_often(source: str, target: str) -> None:
    """Save a grouping again and again, in a process of its own."""
    from inbedder import Grouping

    for _ in range(SAVES):
        Grouping.load(source).save(target)  # loaded anew: one that was saved here would not replace the other's


def write_and_count(name: str, source: str, target: str, at: int | None, sender: Any) -> None:
    """Write a folder, and count the operations on its files.

    Args:
        name: What is written.
        source: Folder of the grouping or the model.
        target: The folder.
        at: The operation before which the process kills itself; None for none.
        sender: Gets the count.
    """
    write = prepare_writer(name, source, Path(target))
    count = 0

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        path = arguments[0] if event in OPERATIONS and arguments else None
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(os.path.dirname(target)):
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1

    if sender is not None:
        sys.addaudithook(audit)
    write()
    if sender is not None:
        sender.send(count)


def prepare_writer(name: str, source: str, target: Path) -> Callable[[], object]:
    """Load what is needed before a folder is written, and return the call that writes it."""
    from inbedder import Grouping
    from inbedder.distributed.job_folder import open_job
    from inbedder.io.files import atomic_write

    def start_job() -> None:
        with open_job(target, JOB):
            pass

    def write_output() -> None:
        with atomic_write(target / "vectors.npy") as temporary, temporary.open("wb") as file:
            np.save(file, np.eye(4, dtype=np.float32))

    if name == "a job":
        return start_job
    if name == "an output":
        return write_output
    if name == "an export":
        model = load(Path(source))
        return lambda: model.save_sentence_transformer(target)
    grouping = Grouping.load(source)
    return lambda: grouping.save(target)
