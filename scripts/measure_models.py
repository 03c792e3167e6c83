#!/usr/bin/env python3
"""Texts per second and peak memory of the bundled models on texts of 20 words, one process per model.

python scripts/measure_models.py --machine "2-core AMD EPYC, avx512_bf16" -o scripts/results/models.json
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

from inbedder import InBedder
from inbedder.files import atomic_write
from inbedder.words import stopwords

TEXTS, WORDS = 512, 20
QUESTIONS = {"texts_per_second": "How does the writer feel?", "texts_per_second_whole_text": "What is the topic?"}
"""Under the second, about the whole text, ``mini`` reads texts without a question, too (``inbedder/whole_text.py``)."""


def measure(name: str) -> dict[str, object]:
    """What one model does in this process."""
    draw, words = random.Random(0), sorted(stopwords())
    texts = [" ".join(draw.choices(words, k=WORDS)) for _ in range(TEXTS)]
    model = InBedder(name)
    rates = {}
    for key, question in QUESTIONS.items():
        model.encode(texts[:32], question)
        began = time.perf_counter()
        model.encode(texts, question)
        rates[key] = round(TEXTS / (time.perf_counter() - began), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"model": name, "dtype": model.precision, **rates, "peak_mib": round(peak)}


def main() -> None:
    """Measure each model in a process of its own and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--machine", default="unnamed")
    parser.add_argument("--model", action="append", help="May repeat; mini and small by default.")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure(options.here)))
        return
    command = [sys.executable, __file__, "-o", str(options.output), "--here"]
    found = [
        json.loads(subprocess.run([*command, name], capture_output=True, text=True, check=True).stdout.splitlines()[-1])
        for name in options.model or ("mini", "small")
    ]
    about = f"{TEXTS} texts of {WORDS} words under one question, the default dtype"
    results = {
        "command": f"python scripts/measure_models.py -o {options.output}",
        "about": about,
        "machine": options.machine,
    }
    with atomic_write(options.output) as temporary:
        temporary.write_text(json.dumps(results | {"models": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
