"""Kills at random moments: what is left is whole, and going on gives what an undisturbed run gives.

Runs are forked from a process that has imported everything, so that hundreds of them fit in minutes; some are begun from nothing
as a user does. A moment is drawn between the start of the command and its end as an undisturbed run was timed.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from inbedder.cache.store import Store
from inbedder.errors import ModelError
from tests.faults.campaign import Fault, Kind, Lost, SilentlyWrong
from tests.faults.forked_runs import CODES, PATIENCE, PRELOADED, Done, catches, end_one, run_inbedder
from tests.faults.stage import INSTRUCTION, ROOT, Stage, load, same_file

OLD = b"what an earlier run wrote"
RECIPE = "finetune/recipes/tiny-opt-lora.yaml"


class Kills:
    """Runs of the command line, and faults that end them."""

    def __init__(self, stage: Stage) -> None:
        """Take the models and make undisturbed runs.

        Args:
            stage: The models and the table.
        """
        self.stage = stage
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOADED)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        model = ["--model", str(stage.models["opt"]), "--dtype", "float32", "--device", "cpu"]
        about = [str(stage.table), "-i", INSTRUCTION, *model]
        self.commands = {
            "embed": (["embed", *about], ["vectors.npy"]),
            "embed to parquet": (["embed", *about], ["vectors.parquet"]),
            "answer": (["answer", *about], ["answers.csv"]),
            "cluster": (["cluster", *about, "-k", "4"], ["report.html", "groups.csv"]),
        }
        self.right: dict[str, tuple[Path, float]] = {}
        self.fresh_seconds: float | None = None

    def kinds(self) -> list[Kind]:
        """The kinds of faults, and how many of each."""
        found = [
            Kind(f"kill of {name}", count, lambda fault, name=name: self.kill(fault, name, cached=False))
            for name, count in (("embed", 36), ("embed to parquet", 24), ("answer", 30), ("cluster", 24))
        ]
        found += [
            Kind(f"kill of {name} with --cache", count, lambda fault, name=name: self.kill(fault, name, cached=True))
            for name, count in (("embed", 60), ("answer", 30), ("cluster", 18))
        ]
        found.append(Kind("kill of a fresh process with --cache", 9, self.kill_fresh))
        found.append(Kind("kill of fine-tuning, resumed", 12, self.kill_training))
        return found

    def arguments(self, name: str, folder: Path, cache: Path | None) -> list[str]:
        """The command line of a run.

        Args:
            name: Of its command.
            folder: For its outputs.
            cache: For --cache.

        Returns:
            Its arguments.
        """
        command, outputs = self.commands[name]
        written = [part for output in outputs for part in ("-o", str(folder / output))]
        return [*command, *written, *(["--cache", str(cache)] if cache else [])]

    def run(self, arguments: list[str], said: Path, kill: tuple[int, float] | None = None, most_bytes: int | None = None) -> Done:
        """Run a command in a forked process.

        Args:
            arguments: Of the command line.
            said: File of what it prints.
            kill: Signal, and after how many seconds it is sent.
            most_bytes: Largest file that it may write.

        Returns:
            How it ended.
        """
        said.unlink(missing_ok=True)
        reading, writing = self.context.Pipe(duplex=False)
        process = self.context.Process(target=run_inbedder, args=(arguments, str(said), writing, most_bytes))
        process.start()
        writing.close()
        reading.recv_bytes()
        started, met = time.monotonic(), False
        if kill is not None:
            process.join(kill[1])
            if process.exitcode is None and process.pid is not None:
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(process.pid, kill[0])
                    met = True
        process.join(PATIENCE)
        seconds, code = time.monotonic() - started, process.exitcode
        if code is None:
            process.kill()
            process.join()
        return Done(code, seconds, said.read_text(encoding="utf-8", errors="replace") if said.exists() else "", met)

    def undisturbed(self, name: str) -> tuple[Path, float]:
        """Folder and seconds of a run that nobody kills, made once."""
        if name not in self.right:
            folder = self.stage.folder / f"right-{name.replace(' ', '-')}"
            folder.mkdir()
            arguments = self.training(folder) if name == "finetune" else self.arguments(name, folder, None)
            for _ in range(2):  # the first run imports what was forgotten
                if name == "finetune":
                    shutil.rmtree(folder)
                done = self.run(arguments, folder.with_suffix(".said"))
                if done.code != 0:
                    raise Lost(f"an undisturbed run of {name} ended with {done.code}: {done.said[-300:]}")
            self.right[name] = (folder, done.seconds)
        return self.right[name]

    def check_outputs(self, name: str, folder: Path, *, all_there: bool, loosely: bool) -> None:
        """Compare the outputs of a run with those of an undisturbed one.

        Args:
            name: Of its command.
            folder: Of its outputs.
            all_there: Whether none may be missing.
            loosely: Whether vectors may differ by rounding, because texts came in other batches.

        Raises:
            Lost: When one is missing.
            SilentlyWrong: When one differs.
        """
        right, _ = self.undisturbed(name)
        for output in self.commands[name][1]:
            path = folder / output
            if not path.exists() or path.read_bytes() == OLD:
                if all_there:
                    raise Lost(f"{output} is missing")
                continue
            if not same_file(path, right / output, loosely):
                raise SilentlyWrong(f"{output} differs from that of an undisturbed run")

    def kill(self, fault: Fault, name: str, *, cached: bool) -> None:
        """End a run at a random moment, look at what is left, and go on."""
        folder, cache = fault.folder / "out", fault.folder / "cache" if cached else None
        sent = list(CODES)[fault.number % 3]
        _, seconds = self.undisturbed(name)
        arguments = self.arguments(name, folder, cache)

        def attempt(moment: float) -> Done:
            for place in filter(None, (folder, cache)):
                shutil.rmtree(place, ignore_errors=True)
            folder.mkdir()
            for output in self.commands[name][1] if fault.number % 2 else ():
                (folder / output).write_bytes(OLD)
            return self.run(arguments, fault.folder / "said", (sent, moment))

        done = end_one(fault, sent, seconds, attempt)
        had = set(self.commands[name][1]) if fault.number % 2 else set()
        self.check_killed(done, sent, name, folder, cache, had)
        again = self.run(arguments, fault.folder / "said")
        if again.code != 0:
            raise Lost(f"going on ended with {again.code}: {again.said[-300:]}")
        self.check_outputs(name, folder, all_there=True, loosely=cached)

    def check_killed(self, done: Done, sent: int, name: str, folder: Path, cache: Path | None, had: set[str]) -> None:
        """Look at what a killed run left.

        Args:
            done: The run.
            sent: The signal.
            name: Of its command.
            folder: Of its outputs.
            cache: Of its results.
            had: Outputs that were there before.

        Raises:
            Lost: When the exit code is another one, an earlier output is gone, a temporary file is left, or the cache is damaged.
            SilentlyWrong: When a half output is left.
        """
        if done.code != CODES[signal.Signals(sent)]:
            raise Lost(f"exit code {done.code}: {done.said[-300:]}")
        if had - set(os.listdir(folder)):
            raise Lost("what an earlier run wrote is gone")
        left = sorted(set(os.listdir(folder)) - set(self.commands[name][1]))
        if left and (sent != signal.SIGKILL or not all(file.startswith(".") for file in left)):
            raise Lost(f"{left} left over")
        self.check_outputs(name, folder, all_there=False, loosely=cache is not None)
        if cache is not None and (cache / "inbedder.sqlite").exists() and (damage := Store(cache).verify()):
            raise Lost(f"the cache is damaged: {damage[:3]}")

    def run_fresh(self, arguments: list[str], said: Path, kill: tuple[int, float] | None = None) -> Done:
        """Run a command in a process that is begun as a user does; time counts from when it has taken charge of signals.

        Args:
            arguments: Of the command line.
            said: File of what it prints.
            kill: Signal, and after how many seconds it is sent.

        Returns:
            How it ended.
        """
        met = False
        with said.open("wb") as file:
            process = subprocess.Popen([sys.executable, "-m", "inbedder", *arguments], cwd=ROOT, stdout=file, stderr=file)
            while process.poll() is None and not catches(process.pid, signal.SIGTERM):
                time.sleep(0.005)
            started = time.monotonic()
            if kill is not None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(kill[1])
                met = process.poll() is None
                process.send_signal(kill[0])
            code, seconds = process.wait(PATIENCE), time.monotonic() - started
        words = said.read_text(encoding="utf-8")
        if kill is not None and words.rstrip().endswith("numbers.") and code in (0, -kill[0]):
            return Done(0, min(kill[1], seconds), words)  # all was written, and the interpreter was ending
        return Done(code, seconds, words, met)

    def kill_fresh(self, fault: Fault) -> None:
        """End a process that was begun as a user does, while it imports, loads or works."""
        folder, cache = fault.folder / "out", fault.folder / "cache"
        sent = list(CODES)[fault.number % 3]
        arguments = self.arguments("embed", folder, cache)
        said = fault.folder / "said"

        def attempt(moment: float) -> Done:
            for place in (folder, cache):
                shutil.rmtree(place, ignore_errors=True)
            folder.mkdir()
            return self.run_fresh(arguments, said, (sent, moment))

        if self.fresh_seconds is None:
            folder.mkdir()
            self.fresh_seconds = self.run_fresh(arguments, said).seconds
        done = end_one(fault, sent, self.fresh_seconds, attempt)
        self.check_killed(done, sent, "embed", folder, cache, set())
        again = self.run(arguments, said)
        if again.code != 0:
            raise Lost(f"going on ended with {again.code}: {again.said[-300:]}")
        self.check_outputs("embed", folder, all_there=True, loosely=True)

    def training(self, folder: Path) -> list[str]:
        """The command line of a fine-tuning of a few seconds."""
        changes = {"output": folder, "max_steps": 8, "save_steps": 2, "eval_steps": 100, "resume": "true"}
        sets = [part for key, value in changes.items() for part in ("--set", f"training.{key}={value}")]
        return ["finetune", RECIPE, *sets, "--set", f"model={self.stage.models['opt']}"]

    def kill_training(self, fault: Fault) -> None:
        """End a fine-tuning at a random moment and go on: the result is that of an undisturbed one."""
        right, seconds = self.undisturbed("finetune")
        output = fault.folder / "run"
        sent = list(CODES)[fault.number % 3]

        def attempt(moment: float) -> Done:
            shutil.rmtree(output, ignore_errors=True)
            return self.run(self.training(output), fault.folder / "said", (sent, moment))

        done = end_one(fault, sent, seconds, attempt)
        fault.note(f"{sorted(path.name for path in output.glob('checkpoint-*'))} left")
        if done.code != CODES[signal.Signals(sent)]:
            raise Lost(f"exit code {done.code}: {done.said[-300:]}")
        self.check_half_saved(output, right)
        again = self.run(self.training(output), fault.folder / "said")
        if again.code != 0:
            raise Lost(f"going on ended with {again.code}: {again.said[-300:]}")
        if not np.array_equal(self.vectors_of(output), self.vectors_of(right)):
            raise SilentlyWrong("the resumed run learned something else")

    def vectors_of(self, model: Path) -> Any:
        """The vectors of a few texts."""
        return load(model).encode(self.stage.few, INSTRUCTION)

    def check_half_saved(self, output: Path, right: Path) -> None:
        """What an ended training left is refused as a model, or is the right one."""
        try:
            vectors = self.vectors_of(output)
        except ModelError:
            return
        if not np.array_equal(vectors, self.vectors_of(right)):
            raise SilentlyWrong("a half-saved model loads and is another one")
