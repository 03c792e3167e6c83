#!/usr/bin/env python3
"""How long a command takes that reads one row, as a whole process, and which packages it imports.

    python scripts/bench/measure_start.py            (about 2 minutes; needs inbedder[mini,search])

Each round runs every command once in turn after a warm-up; the median of the rounds counts. The imports are those of one more run
with ``python -X importtime``, whose own work makes it slower.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmark_inputs import RESULTS, get_capability, get_processor

REVIEWS = Path(__file__).parents[2] / "inbedder" / "demo_texts" / "reviews.csv"
QUESTION = "Do they love animals?"
UNUSED = (
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.tensor",
    "transformers.generation.continuous_batching",
    "lance_namespace",
    "sklearn",
    "scipy.optimize",
)
MAX_PLACEHOLDERS = 12
"""Maximum number of modules of an unused package that count as placeholders (``inbedder.cli.light_imports``)."""
IMPORT_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)")


def run(arguments: list[str], *, times_imports: bool = False) -> tuple[float, str]:
    """Seconds of a command, and what it printed as an error."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    flags = ["-X", "importtime"] if times_imports else []
    start = time.perf_counter()
    process = subprocess.run(
        [sys.executable, *flags, "-m", "inbedder", *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return time.perf_counter() - start, process.stderr


def describe_imports(lines: str) -> dict[str, Any]:
    """Number of modules, milliseconds of the slowest packages, and which of the unused modules were imported."""
    imports = [(int(microseconds), name) for microseconds, name in IMPORT_LINE.findall(lines)]
    packages: Counter[str] = Counter()
    for microseconds, name in imports:
        packages[name.split(".")[0]] += microseconds
    names = {name for _, name in imports}
    return {
        "modules": len(imports),
        "import_ms": {package: round(total / 1000) for package, total in packages.most_common(8)},
        "unused_modules": [name for name in UNUSED if sum(one.startswith(f"{name}.") for one in names) > MAX_PLACEHOLDERS],
    }


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "start.json")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        row, index = Path(name) / "row.csv", Path(name) / "index"
        row.write_text("text\nI love cats\n", encoding="utf-8")
        run(["index", "build", str(REVIEWS), "-o", str(index), "--text-column", "text"])
        commands = {
            "--help": ["--help"],
            "answer, one row": ["answer", str(row), "--instruction", QUESTION],
            "embed, one row": ["embed", str(row), "--instruction", QUESTION, "-o", str(Path(name) / "vectors.npy")],
            "search, 400 rows": ["search", str(index), "rude waiter", "--instruction", "How is the staff?"],
        }
        seconds: dict[str, list[float]] = {command: [] for command in commands}
        for number in range(options.rounds + 1):
            for command, arguments in commands.items():
                passed, _ = run(arguments)
                if number:
                    seconds[command].append(round(passed, 2))
        results = {
            command: {
                "median_s": round(statistics.median(seconds[command]), 2),
                **describe_imports(run(arguments, times_imports=True)[1]),
                "seconds": seconds[command],
            }
            for command, arguments in commands.items()
        }
    content = {
        "machine": f"{get_processor()}, {os.cpu_count()} cores, {get_capability()}",
        "command": shlex.join(["python", "scripts/bench/measure_start.py", *sys.argv[1:]]),
        "versions": {package: version(package) for package in ("torch", "transformers", "lancedb")},
        "commands": results,
    }
    options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for command, one in results.items():
        print(command, one["median_s"], one["modules"], one["import_ms"], one["unused_modules"])


if __name__ == "__main__":
    main()
