#!/usr/bin/env python3
"""Time commands that read one row as whole processes, and list the packages that they import.

    python -m scripts.bench.start            (about 2 minutes; needs inbedder[mini,search])

The results are medians of the rounds. The imports are those of one more run with ``python -X importtime``.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from scripts.bench.benchmark_inputs import RESULTS
from scripts.bench.harness import REVIEWS, describe_run, make_parser, time_in_turn, write_results

QUESTION = "Do they love animals?"
UNUSED = ("transformers", "torch._dynamo", "torch._inductor", "sklearn", "scipy.optimize")
"""Packages that no command on one row with ``mini`` needs."""
IMPORT_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)")


def run(arguments: list[str], *, times_imports: bool = False) -> str:
    """Run a command, and return what it printed to stderr."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    flags = ["-X", "importtime"] if times_imports else []
    process = subprocess.run(
        [sys.executable, *flags, "-m", "inbedder", *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return process.stderr


def describe_imports(lines: str) -> dict[str, Any]:
    """Count the imported modules, time the slowest packages, and list the imported modules that no command needs."""
    imports = [(int(microseconds), name) for microseconds, name in IMPORT_LINE.findall(lines)]
    packages: Counter[str] = Counter()
    for microseconds, name in imports:
        packages[name.split(".")[0]] += microseconds
    names = {name for _, name in imports}
    return {
        "modules": len(imports),
        "import_ms": {package: round(total / 1000) for package, total in packages.most_common(8)},
        "unused_modules": [name for name in UNUSED if name in names],
    }


def main() -> None:
    """Measure every command and write."""
    parser = make_parser(__doc__, RESULTS / "start.json")
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
        seconds = time_in_turn({name: partial(run, arguments) for name, arguments in commands.items()}, options.rounds)
        results = {
            command: {
                "median_s": round(statistics.median(seconds[command]), 2),
                **describe_imports(run(arguments, times_imports=True)),
                "seconds": seconds[command],
            }
            for command, arguments in commands.items()
        }
    write_results(options.output, {**describe_run(options, ("torch", "transformers", "lancedb")), "commands": results})
    for command, one in results.items():
        print(command, one["median_s"], one["modules"], one["import_ms"], one["unused_modules"])


if __name__ == "__main__":
    main()
