"""Kills at random moments: what is left is whole, and going on gives what an undisturbed run gives.

Runs are forked from a process that has imported everything, so that hundreds of them fit in minutes; some are begun from nothing
as a user does. A moment is drawn between the start of the command and its end as an undisturbed run was timed.
"""

from __future__ import annotations

import math
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
from tests.faults.campaign import Fault, Kind, Lost, UndetectedError
from tests.faults.forked_runs import CODES, PATIENCE, PRELOADED, Done, catches, end_one, run_inbedder
from tests.faults.stage import INSTRUCTION, ROOT, Stage, load, same_file

OLD = b"what an earlier run wrote"
RECIPE = "tests/data/recipes/tiny-opt-lora.yaml"


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
        arguments_of_questions = [str(stage.table), "-i", INSTRUCTION, *model]
        self.commands = {
            "embed": (["embed", *arguments_of_questions], ["vectors.npy"]),
            "embed to parquet": (["embed", *arguments_of_questions], ["vectors.parquet"]),
            "answer": (["answer", *arguments_of_questions], ["answers.csv"]),
            "cluster": (["cluster", *arguments_of_questions, "-k", "4"], ["report.html", "groups.csv"]),
        }
        self.right: dict[str, tuple[Path, float]] = {}
        self.fresh_seconds: float | None = None

    def kinds(self) -> list[Kind]:
        """The kinds of faults, and how many of each."""
        commands = [
            Kind(f"kill of {name}", count, lambda fault, name=name: self.kill(fault, name, cached=False))
            for name, count in (("embed", 36), ("embed to parquet", 24), ("answer", 30), ("cluster", 24))
        ]
        commands += [
            Kind(f"kill of {name} with --cache", count, lambda fault, name=name: self.kill(fault, name, cached=True))
            for name, count in (("embed", 60), ("answer", 30), ("cluster", 18))
        ]
        commands.append(Kind("kill of a fresh process with --cache", 9, self.kill_fresh))
        commands.append(Kind("kill of fine-tuning, resumed", 12, self.kill_training))
        return commands

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
        output_options = [part for output in outputs for part in ("-o", str(folder / output))]
        return [*command, *output_options, *(["--cache", str(cache)] if cache else [])]

    def run(
        self, arguments: list[str], log_path: Path, kill: tuple[int, float] | None = None, most_bytes: int | None = None
    ) -> Done:
        """Run a command in a forked process.

        Args:
            arguments: Of the command line.
            said: File of what it prints.
            kill: Signal, and after how many seconds it is sent.
            most_bytes: Largest file that it may write.

        Returns:
            How it ended.
        """
        log_path.unlink(missing_ok=True)
        reading, writing = self.context.Pipe(duplex=False)
        process = self.context.Process(target=run_inbedder, args=(arguments, str(log_path), writing, most_bytes))
        process.start()
        writing.close()
        reading.recv_bytes()
        started, sent_at = time.monotonic(), None
        if kill is not None:
            process.join(kill[1])
            if process.exitcode is None and process.pid is not None:
                with suppress(ProcessLookupError):  # it has just ended
                    sent_at = time.monotonic()
                    os.kill(process.pid, kill[0])
        process.join(PATIENCE)
        seconds, code = time.monotonic() - started, process.exitcode
        if code is None:
            process.kill()
            process.join()
        ended_at = math.inf
        with suppress(EOFError):  # the signal ended it
            ended_at = reading.recv() if reading.poll() else math.inf
        output = log_path.read_text(encoding="utf-8", errors="replace") if log_path.exists() else ""
        return Done(code, seconds, output, was_working=sent_at is not None and sent_at < ended_at)

    def undisturbed(self, name: str) -> tuple[Path, float]:
        """Folder and seconds of a run that nobody kills, made once."""
        if name not in self.right:
            folder = self.stage.folder / f"right-{name.replace(' ', '-')}"
            folder.mkdir()
            arguments = self.training(folder) if name == "finetune" else self.arguments(name, folder, None)
            for _ in range(2):  # the first run imports what was forgotten
                if name == "finetune":
                    shutil.rmtree(folder)
                run = self.run(arguments, folder.with_suffix(".output"))
                if run.code != 0:
                    raise Lost(f"an undisturbed run of {name} ended with {run.code}: {run.output[-300:]}")
            self.right[name] = (folder, run.seconds)
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
            UndetectedError: When one differs.
        """
        right, _ = self.undisturbed(name)
        for output in self.commands[name][1]:
            path = folder / output
            if not path.exists() or path.read_bytes() == OLD:
                if all_there:
                    raise Lost(f"{output} is missing")
                continue
            if not same_file(path, right / output, loosely):
                raise UndetectedError(f"{output} differs from that of an undisturbed run")

    def kill(self, fault: Fault, name: str, *, cached: bool) -> None:
        """End a run at a random moment, look at what is left, and go on."""
        folder, cache = fault.folder / "out", fault.folder / "cache" if cached else None
        signal_sent = list(CODES)[fault.number % 3]
        _, seconds = self.undisturbed(name)
        arguments = self.arguments(name, folder, cache)

        def attempt(moment: float) -> Done:
            for place in filter(None, (folder, cache)):
                shutil.rmtree(place, ignore_errors=True)
            folder.mkdir()
            for output in self.commands[name][1] if fault.number % 2 else ():
                (folder / output).write_bytes(OLD)
            return self.run(arguments, fault.folder / "said", (signal_sent, moment))

        run = end_one(fault, signal_sent, seconds, attempt)
        outputs_before = set(self.commands[name][1]) if fault.number % 2 else set()
        self.check_killed(run, signal_sent, name, folder, cache, outputs_before)
        rerun = self.run(arguments, fault.folder / "said")
        if rerun.code != 0:
            raise Lost(f"going on ended with {rerun.code}: {rerun.output[-300:]}")
        self.check_outputs(name, folder, all_there=True, loosely=cached)

    def check_killed(
        self, run: Done, signal_sent: int, name: str, folder: Path, cache: Path | None, outputs_before: set[str]
    ) -> None:
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
            UndetectedError: When a half output is left.
        """
        if run.code != CODES[signal.Signals(signal_sent)]:
            raise Lost(f"exit code {run.code}: {run.output[-300:]}")
        if outputs_before - set(os.listdir(folder)):
            raise Lost("what an earlier run wrote is gone")
        leftovers = sorted(set(os.listdir(folder)) - set(self.commands[name][1]))
        if leftovers and (signal_sent != signal.SIGKILL or not all(file.startswith(".") for file in leftovers)):
            raise Lost(f"{leftovers} left over")
        self.check_outputs(name, folder, all_there=False, loosely=cache is not None)
        if cache is not None and (cache / "inbedder.sqlite").exists() and (damage := Store(cache).verify()):
            raise Lost(f"the cache is damaged: {damage[:3]}")

    def run_fresh(self, arguments: list[str], log_path: Path, kill: tuple[int, float] | None = None) -> Done:
        """Run a command in a process that is begun as a user does; time counts from when it has taken charge of signals.

        Args:
            arguments: Of the command line.
            said: File of what it prints.
            kill: Signal, and after how many seconds it is sent.

        Returns:
            How it ended.
        """
        was_working = False
        with log_path.open("wb") as file:
            process = subprocess.Popen([sys.executable, "-m", "inbedder", *arguments], cwd=ROOT, stdout=file, stderr=file)
            while process.poll() is None and not catches(process.pid, signal.SIGTERM):
                time.sleep(0.005)
            started = time.monotonic()
            if kill is not None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(kill[1])
                was_working = process.poll() is None
                process.send_signal(kill[0])
            code, seconds = process.wait(PATIENCE), time.monotonic() - started
        words = log_path.read_text(encoding="utf-8")
        if kill is not None and words.rstrip().endswith("numbers.") and code in (0, -kill[0]):
            return Done(0, min(kill[1], seconds), words)  # all was written, and the interpreter was ending
        return Done(code, seconds, words, was_working)

    def kill_fresh(self, fault: Fault) -> None:
        """End a process that was begun as a user does, while it imports, loads or works."""
        folder, cache = fault.folder / "out", fault.folder / "cache"
        signal_sent = list(CODES)[fault.number % 3]
        arguments = self.arguments("embed", folder, cache)
        log_path = fault.folder / "said"

        def attempt(moment: float) -> Done:
            for place in (folder, cache):
                shutil.rmtree(place, ignore_errors=True)
            folder.mkdir()
            return self.run_fresh(arguments, log_path, (signal_sent, moment))

        if self.fresh_seconds is None:
            folder.mkdir()
            self.fresh_seconds = self.run_fresh(arguments, log_path).seconds
        run = end_one(fault, signal_sent, self.fresh_seconds, attempt)
        self.check_killed(run, signal_sent, "embed", folder, cache, set())
        rerun = self.run(arguments, log_path)
        if rerun.code != 0:
            raise Lost(f"going on ended with {rerun.code}: {rerun.output[-300:]}")
        self.check_outputs("embed", folder, all_there=True, loosely=True)

    def training(self, folder: Path) -> list[str]:
        """The command line of a fine-tuning of a few seconds."""
        changes = {"output": folder, "max_steps": 8, "save_steps": 2, "eval_steps": 100}
        sets = [part for key, value in changes.items() for part in ("--set", f"training.{key}={value}")]
        return ["finetune", RECIPE, *sets, "--set", f"model={self.stage.models['opt']}"]

    def kill_training(self, fault: Fault) -> None:
        """End a fine-tuning at a random moment and go on: the result is that of an undisturbed one."""
        right, seconds = self.undisturbed("finetune")
        output = fault.folder / "run"
        signal_sent = list(CODES)[fault.number % 3]

        def attempt(moment: float) -> Done:
            shutil.rmtree(output, ignore_errors=True)
            return self.run(self.training(output), fault.folder / "said", (signal_sent, moment))

        run = end_one(fault, signal_sent, seconds, attempt)
        fault.note(f"{sorted(path.name for path in output.glob('checkpoint-*'))} left")
        if run.code != CODES[signal.Signals(signal_sent)]:
            raise Lost(f"exit code {run.code}: {run.output[-300:]}")
        self.check_half_saved(output, right)
        rerun = self.run(self.training(output), fault.folder / "said")
        if rerun.code != 0:
            raise Lost(f"going on ended with {rerun.code}: {rerun.output[-300:]}")
        if not np.array_equal(self.vectors_of(output), self.vectors_of(right)):
            raise UndetectedError("the resumed run learned something else")

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
            raise UndetectedError("a half-saved model loads and is another one")
