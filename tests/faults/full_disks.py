"""Full disks and folders that cannot be written."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inbedder.cache.store import Store
from tests.faults.campaign import Fault, Kind, Lost, NotPossible
from tests.faults.forked_runs import Done
from tests.faults.kills import Kills
from tests.faults.stage import INSTRUCTION, Stage, check_vectors, load

OUTPUTS = [
    *(("embed", ".npy"), ("embed", ".parquet"), ("cluster", ".html"), ("cluster", ".csv"), ("cluster", ".parquet")),
    *(("answer", end) for end in (".csv", ".tsv", ".jsonl", ".json", ".parquet")),
]
"""Every kind of output."""


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[bool]:
    """A disk of so many KiB in a folder.

    Args:
        folder: Made, and empty again afterwards.
        kib: Its size.

    Yields:
        Whether this machine allows it; where not, the size of files has to be limited instead.
    """
    folder.mkdir()
    mounted_now = _mount("-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder))
    try:
        yield mounted_now
    finally:
        if mounted_now:
            subprocess.run(["umount", "-l", str(folder)], check=False, stderr=subprocess.DEVNULL)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder that cannot be written: mounted so, or by its mode where that binds this user.

    Args:
        folder: The folder.

    Yields:
        Nothing.

    Raises:
        NotPossible: When the user may write everywhere and mount nothing.
    """
    if _mount("--bind", str(folder), str(folder)):
        mounted_now = _mount("-o", "remount,ro,bind", str(folder))
        try:
            if not mounted_now:
                raise NotPossible("a read-only mount is refused")
            yield
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=False, stderr=subprocess.DEVNULL)
    elif os.geteuid() == 0:
        raise NotPossible("root may write everywhere, and mounting is refused")
    else:
        paths = [folder, *folder.rglob("*")]
        modes = [(place, place.stat().st_mode) for place in paths]
        for place, mode in modes:
            place.chmod(mode & ~0o222)
        try:
            yield
        finally:
            for place, mode in modes:
                place.chmod(mode)


def _mount(*arguments: str) -> bool:
    if not shutil.which("mount"):
        return False
    return subprocess.run(["mount", *arguments], check=False, stderr=subprocess.DEVNULL).returncode == 0


class Places:
    """Faults of where something is written."""

    def __init__(self, stage: Stage, kills: Kills) -> None:
        """Take the models and what runs commands.

        Args:
            stage: The models.
            kills: What runs commands.
        """
        self.stage, self.kills = stage, kills

    def kinds(self) -> list[Kind]:
        """The kinds of faults, and how many of each."""
        return [
            Kind("full disk under an output", 30, self.full_output),
            Kind("full disk under the cache", 12, self.full_cache),
            Kind("full disk under fine-tuning", 4, self.full_training),
            Kind("read-only folder for an output", 10, self.read_only_output),
            Kind("read-only cache", 8, self.read_only_cache),
            Kind("read-only model folder", 6, self.read_only_model),
        ]

    def _run(self, fault: Fault, place: Path, cache: Path | None = None, most: int | None = None) -> tuple[Done, str, Path]:
        """A run whose output is of the kind that the fault's number chooses."""
        name, end = OUTPUTS[fault.number % len(OUTPUTS)]
        output = place / f"output{end}"
        command, _ = self.kills.commands[name]
        with_cache = ["--cache", str(cache)] if cache else []
        run = self.kills.run([*command, "-o", str(output), *with_cache], fault.folder / "said", most_bytes=most)
        return run, f"{name} to {end}", output

    def full_output(self, fault: Fault) -> None:
        """The output does not fit: exit 1 and a message, nothing is left over, and what was there stays."""
        disk = fault.folder / "disk"
        before = b"what was there before"
        plain = fault.folder / "plain"
        plain.mkdir()
        run, label, output = self._run(fault, plain)
        size = output.stat().st_size
        kib = fault.draw.randrange(4, max(5, size // 1024 - 8))
        fault.note(f"{label}, {size} bytes on {kib} KiB")
        with small_disk(disk, kib) as mounted:
            (disk / output.name).write_bytes(before)
            run, _, output = self._run(fault, disk, most=None if mounted else kib * 1024)
            if run.code != 1:
                raise Lost(f"exit code {run.code}: {run.output[-300:]}")
            if "Cannot write" not in run.output or "Unexpected error" in run.output:
                raise Lost(f"the message does not say so: {run.output[-300:]}")
            if output.read_bytes() != before:
                raise Lost("what was there before is gone")
            if len(os.listdir(disk)) != 1:
                raise Lost(f"{sorted(os.listdir(disk))} left over")

    def full_cache(self, fault: Fault) -> None:
        """The cache does not fit: the run goes on, its result is right, and so is the cache when there is room."""
        name = ("embed", "answer")[fault.number % 2]
        kib = fault.draw.randrange(8, 160)
        fault.note(f"{name} with a cache on {kib} KiB")
        output, disk = fault.folder / "out", fault.folder / "disk"
        output.mkdir()
        with small_disk(disk, kib) as mounted:
            if not mounted:
                raise NotPossible("mounting a small disk is refused")
            cache = disk / "cache"
            arguments = self.kills.arguments(name, output, cache)
            run = self.kills.run(arguments, fault.folder / "said")
            if run.code == 0:
                self.kills.check_outputs(name, output, all_there=True, loosely=True)
                if "cannot be written" not in run.output:
                    raise Lost(f"nobody was told that results are not kept: {run.output[-300:]}")
            elif "Choose another folder" not in run.output:
                raise Lost(f"exit code {run.code}: {run.output[-300:]}")
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            rerun = self.kills.run(arguments, fault.folder / "said")
            if rerun.code != 0:
                raise Lost(f"with room again: exit code {rerun.code}: {rerun.output[-300:]}")
            self.kills.check_outputs(name, output, all_there=True, loosely=True)
            if damage := Store(cache).verify():
                raise Lost(f"the cache is damaged: {damage[:3]}")

    def full_training(self, fault: Fault) -> None:
        """A checkpoint or the result does not fit: a message, and with room it goes on to the same result."""
        right, _ = self.kills.undisturbed("finetune")
        size_kib = sum(path.stat().st_size for path in right.rglob("*") if path.is_file()) // 1024
        kib = fault.draw.randrange(size_kib // 10, size_kib * 9 // 10)
        fault.note(f"{kib} of {size_kib} KiB")
        disk = fault.folder / "disk"
        with small_disk(disk, kib) as mounted:
            if not mounted:
                raise NotPossible("mounting a small disk is refused")
            run = self.kills.run(self.kills.training(disk / "run"), fault.folder / "said")
            if run.code != 1 or "Unexpected error" in run.output or ("error:" not in run.output and "Cannot" not in run.output):
                raise Lost(f"exit code {run.code}: {run.output[-300:]}")
            if (disk / "run").exists():
                self.kills.check_half_saved(disk / "run", right)
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            rerun = self.kills.run(self.kills.training(disk / "run"), fault.folder / "said")
            if rerun.code != 0:
                raise Lost(f"with room again: exit code {rerun.code}: {rerun.output[-300:]}")
            check_vectors(self.kills.vectors_of(disk / "run"), self.kills.vectors_of(right), "the resumed run")

    def read_only_output(self, fault: Fault) -> None:
        """The folder of the output cannot be written: exit 2 before any work."""
        place = fault.folder / "out"
        place.mkdir()
        with read_only(place):
            run, label, _ = self._run(fault, place)
        fault.note(label)
        if run.code != 2 or "computes in" in run.output or os.listdir(place):
            raise Lost(f"exit code {run.code}: {run.output[-300:]}")

    def read_only_cache(self, fault: Fault) -> None:
        """What a cache that cannot be written holds is used, and the result is right; a folder without one is refused."""
        name = ("embed", "answer")[fault.number % 2]
        output, cache = fault.folder / "out", fault.folder / "cache"
        output.mkdir()
        cache.mkdir()
        has_cache = fault.number % 4 < 2
        arguments = self.kills.arguments(name, output, cache)
        if has_cache and self.kills.run(arguments, fault.folder / "said").code != 0:
            raise Lost("the run that fills the cache failed")
        fault.note(f"{name}, {'a filled' if has_cache else 'no'} cache in the folder")
        with read_only(cache):
            run = self.kills.run(arguments, fault.folder / "said")
        if has_cache and run.code == 0:
            self.kills.check_outputs(name, output, all_there=True, loosely=True)
        elif has_cache or run.code != 1 or "Choose another folder" not in run.output:
            raise Lost(f"exit code {run.code}: {run.output[-300:]}")

    def read_only_model(self, fault: Fault) -> None:
        """A model in a folder that cannot be written gives the right vectors."""
        name = (*self.stage.models, "adapter")[fault.number % 4]
        copy = fault.folder / name
        shutil.copytree(self.stage.models.get(name, self.stage.adapter), copy)
        fault.note(name)
        with read_only(copy):
            check_vectors(load(copy).encode(self.stage.few, INSTRUCTION), self.stage.vectors[name], "the model")
