"""Test and measure everything that needs a GPU, in stages of a process each; scripts/bench/gpu_suite starts this file.

    scripts/bench/gpu_suite prepare                  fill .gpu/ with what the other machine lacks: wheels, and the base of mini
    scripts/bench/gpu_suite run -o FOLDER            every stage, nine minutes at most
    scripts/bench/gpu_suite run --only mini --only shapes
    scripts/bench/gpu_suite run --device cpu --tiny -o /tmp/tiny         tries the suite itself, without a GPU

``.gpu/`` is not tracked: carry it to the machine with the working tree. A stage that fails or runs out of time loses nothing of
the others, nor of what it has measured itself; the results say which. They are kept by card:
``scripts/results/gpu-nvidia-h100-80gb-hbm3.json``, with a log. A run with --only keeps the other stages of that file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_suite_wheels import CUDA_LIBRARY, download_wheels, shrink_wheel, unpack_wheels

from inbedder.io.files import atomic_write

ROOT = Path(__file__).resolve().parents[2]
CARRIED = ROOT / ".gpu"
MAX_CARRIED_BYTES = 26 * 10**6
TOTAL_SECONDS = 540
LIMITS = {"environment": 60, "tests": 110, "mini": 100, "shapes": 190, "finetune": 190}
"""Seconds that each stage may take, the most valuable stages first; a stage also ends when the total is spent."""
LOG_NAME = "gpu-suite.log"
NO_GPU = "There is no GPU here: nothing to measure."
STARTED = time.monotonic()


@dataclass(frozen=True)
class Choices:
    """The options of a run that reach every stage."""

    device: str = "cuda"
    """"cuda" or "cpu"."""
    tiny: bool = False
    """Whether to use tiny shapes and few texts, to try the suite itself."""


def prepare(folder: Path) -> None:
    """Fill the folder, and print its size; exit when it is too large to travel with the working tree."""
    from gpu_suite_base import pack_base

    from inbedder.models.bundled import find_base_folder

    shutil.rmtree(folder, ignore_errors=True)
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    download_wheels(wheels)
    for wheel in wheels.glob("bitsandbytes-*.whl"):
        shrink_wheel(wheel, CUDA_LIBRARY)
    pack_base(find_base_folder(), folder / "base")
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {total / 1e6:.1f} MB")
    if total > MAX_CARRIED_BYTES:
        sys.exit(f"It is over {MAX_CARRIED_BYTES / 1e6:.0f} MB. Carry fewer packages (PACKAGES).")


def make_command(stage: str, choices: Choices, output: Path) -> list[str]:
    """Make the command of a stage's process."""
    tiny = ["--tiny"] * choices.tiny
    return [sys.executable, __file__, "stage", stage, "--device", choices.device, *tiny, "-o", str(output)]


def run_stage(command: Sequence[str], output: Path, log: Path, seconds: float) -> dict[str, Any]:
    """Run the process of a stage.

    Args:
        command: Its command, which writes its results into ``output`` as it goes.
        output: The file of its results.
        log: The file to which its output is appended.
        seconds: Its time limit.

    Returns:
        Its results with ``state`` ("done", "failed" or "timed out"), ``seconds`` and, unless it is done, ``error``.
    """
    start = time.monotonic()
    with log.open("a", encoding="utf-8") as stream:
        first = stream.tell()
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            state = "failed" if process.wait(timeout=max(0.1, seconds)) else "done"
        except subprocess.TimeoutExpired:
            state = "timed out"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    results = {"state": state, "seconds": round(time.monotonic() - start, 1)}
    if state != "done":
        lines = log.read_bytes()[first:].decode(errors="replace").strip().splitlines()
        results["error"] = f"over {seconds:.0f} seconds" if state == "timed out" else (lines or ["no output"])[-1][:500]
    return results | (json.loads(output.read_text(encoding="utf-8")) if output.exists() else {})


def run(folder: Path, choices: Choices, stages: Mapping[str, float]) -> Path:
    """Run stages one after another, and write the results after each.

    Args:
        folder: The folder of results and log; a results file of the same card keeps its other stages.
        choices: Device and size.
        stages: Seconds per stage, by name.

    Returns:
        The results file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / LOG_NAME
    log.unlink(missing_ok=True)
    command = " ".join(["scripts/bench/gpu_suite", *sys.argv[1:]])
    content: dict[str, Any] = {"stages": {}}
    with tempfile.TemporaryDirectory() as temporary:
        site = unpack_wheels(CARRIED, Path(temporary, "site"))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [site and str(site), os.environ.get("PYTHONPATH")]))
        path = folder / "gpu.json"
        for stage, limit in stages.items():
            remaining = TOTAL_SECONDS - (time.monotonic() - STARTED)
            output = Path(temporary, f"{stage}.json")
            results = run_stage(make_command(stage, choices, output), output, log, min(limit, remaining))
            if results.get("error") == NO_GPU:
                sys.exit(NO_GPU)
            if stage == "environment":
                path = folder / f"gpu-{results.get('card', choices.device).lower().replace(' ', '-')}.json"
                content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else content
            content["stages"][stage] = {"command": command, **results}
            write_json(path, content)
            print(json.dumps({stage: results}, indent=1), flush=True)
    return path


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a results file."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def measure(stage: str, choices: Choices, output: Path) -> None:
    """Run one stage in this process."""
    measure_stage = importlib.import_module(f"gpu_suite_{stage}").measure_stage
    content: dict[str, Any] = {}

    def record(name: str, value: Any) -> None:
        content[name] = value
        write_json(output, content)

    measure_stage(choices.device, choices.tiny, record)


def main() -> None:
    """Prepare, run, or (started by ``run``) measure one stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare")
    run_parser, stage_parser = commands.add_parser("run"), commands.add_parser("stage")
    run_parser.add_argument("-o", "--output", type=Path, default=ROOT / "scripts" / "results", metavar="FOLDER")
    run_parser.add_argument("--only", action="append", choices=LIMITS, metavar="STAGE", help=f"one of: {', '.join(LIMITS)}")
    stage_parser.add_argument("stage", choices=LIMITS)
    stage_parser.add_argument("-o", "--output", type=Path, required=True)
    for each in (run_parser, stage_parser):
        each.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
        each.add_argument("--tiny", action="store_true", help="tiny shapes and few texts, to try the suite itself")
    options = parser.parse_args()
    if options.command == "prepare":
        prepare(CARRIED)
        return
    choices = Choices(options.device, options.tiny)
    if options.command == "stage":
        measure(options.stage, choices, options.output)
        return
    stages = {name: limit for name, limit in LIMITS.items() if name in (options.only or LIMITS) or name == "environment"}
    path = run(options.output, choices, stages)
    states = {name: stage["state"] for name, stage in json.loads(path.read_text(encoding="utf-8"))["stages"].items()}
    print(f"{path}: {', '.join(f'{name} {state}' for name, state in states.items())}")
    if set(states.values()) != {"done"}:
        sys.exit(1)


if __name__ == "__main__":
    main()
