"""Inject faults into inbedder: hundreds of faults that a seed decides, and what became of each.

    python -m tests.faults --minutes 15 --seed 0 -o scripts/results/faults.json
    python -m tests.faults --seed 0 --only "damaged cache file" --number 17

A fault is *survived* when all is right after it: the exit code that is documented, no output or a whole one, no file left over, a
result equal to that of an undisturbed run, or an error that names the cure where none can be had. *Lost* is work or data that is
gone though it need not be, and an end that nobody explains; *undetected* is a wrong result without an error. The exit code is
1 when anything is lost or undetected.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker:UserWarning"  # killed runs leave semaphores to it

from tests.faults.campaign import FULL_MINUTES, Kind, Tally, table_of, take_turns, total_of

OVERTIME_FACTOR = 1.6
"""Times the minutes asked for, after which no fault is begun."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign.

    Args:
        arguments: Of the command line.

    Returns:
        Its exit code: 0 when nothing was lost or undetected.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES, help="about how long it takes on 2 cores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, help="a json file of the results")
    parser.add_argument("--only", help="kinds of faults whose name contains this")
    parser.add_argument("--number", type=int, help="with --only: one fault of the kind")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=os.environ.get("FAULTS_FOLDER")))
    started = time.monotonic()
    try:
        tallies, memory = campaign(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table_of(tallies))
    if memory:
        print(
            f"memory: {memory['lines']} lines; median {memory['median_mib_second_quarter']} MiB in the second quarter, "
            f"{memory['median_mib_last_quarter']} MiB in the last; {'flat' if memory['flat'] else 'NOT FLAT'}"
        )
    if options.output:
        options.output.write_text(json.dumps(report(tallies, memory, options, started), indent=1) + "\n", encoding="utf-8")
    total = total_of(tallies)
    return int(bool(total["lost"] or total["undetected"] or (memory and not memory["flat"])))


def campaign(options: argparse.Namespace, folder: Path) -> tuple[list[Tally], dict[str, Any]]:
    """Make the faults, those of other processes beside those of this one.

    Args:
        options: Of the command line.
        folder: An empty folder.

    Returns:
        What became of them, and of the run whose memory was measured.
    """
    import torch

    from tests.faults.damage import Damages
    from tests.faults.folder_kills import FolderKills
    from tests.faults.full_disks import Places
    from tests.faults.hostile_requests import HostileRequests
    from tests.faults.kills import Kills
    from tests.faults.neighbours import Neighbours
    from tests.faults.odd_inputs import LINES, Threads, odd_kind, start_memory_run, watch_memory
    from tests.faults.stage import Stage

    logging.disable(logging.ERROR)  # hundreds of warnings of damage are expected
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.cpu.get_capabilities = dict  # float32 everywhere
    end = time.monotonic() + 60 * options.minutes * OVERTIME_FACTOR
    memory: dict[str, Any] = {}
    lines = int(LINES * min(1.0, max(0.3, options.minutes / FULL_MINUTES)))
    watched = None if options.only else start_memory_run(folder / "memory", lines)
    (folder / "stage").mkdir()
    stage = Stage(folder / "stage")
    kills = Kills(stage)
    in_process = (Damages(stage), Threads(stage), Neighbours(stage), HostileRequests(stage))
    lanes = [
        [*FolderKills(stage, kills.context).kinds(), *Places(stage, kills).kinds(), *kills.kinds()],  # the quick ones first
        [*(kind for source in in_process for kind in source.kinds()), odd_kind()],
    ]
    with ThreadPoolExecutor(len(lanes) + 1) as pool:
        watching = pool.submit(watch_memory, *watched, lines) if watched else None
        running = [pool.submit(run_lane, lane, options, folder, end) for lane in lanes]
        tallies = [tally for lane in running for tally in lane.result()]
        if watching is not None:
            memory = watching.result()
    return tallies, memory


def run_lane(kinds: Sequence[Kind], options: argparse.Namespace, folder: Path, end: float) -> list[Tally]:
    """Make the faults of several kinds, which take turns.

    Args:
        kinds: The kinds.
        options: Of the command line.
        folder: Where faults get their folders.
        end: When to stop.

    Returns:
        What became of them.
    """
    selected_kinds = [kind for kind in kinds if not options.only or options.only in kind.name]
    numbers = [kind.numbers(options.minutes) if options.number is None else [options.number] for kind in selected_kinds]
    tallies = {}
    for tally in take_turns(zip(selected_kinds, numbers, strict=True), options.seed, folder, end):
        tallies[tally.kind] = tally
        print("\n".join([table_of([tally]).splitlines()[1], *tally.lost, *tally.undetected]), file=sys.stderr, flush=True)
    return [tallies[kind.name] for kind in selected_kinds]


def report(tallies: Sequence[Tally], memory: dict[str, Any], options: argparse.Namespace, started: float) -> dict[str, Any]:
    """The results as json.

    Args:
        tallies: Of all kinds.
        memory: Of the run whose memory was measured.
        options: Of the command line.
        started: When the campaign began.

    Returns:
        Command, seed, machine, counts, and a description of every bad end.
    """
    import torch
    import transformers

    import inbedder

    return {
        "command": f"python -m tests.faults --minutes {options.minutes:g} --seed {options.seed} -o {options.output}",
        "seed": options.seed,
        "versions": {
            "inbedder": inbedder.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "minutes": round((time.monotonic() - started) / 60, 1),
        "total": total_of(tallies),
        "kinds": [tally.to_json() for tally in tallies],
        "lost": [case for tally in tallies for case in tally.lost],
        "undetected": [case for tally in tallies for case in tally.undetected],
        "memory": memory,
    }


if __name__ == "__main__":
    sys.exit(main())
