#!/usr/bin/env python3
"""Estimate a billion rows: cost per million texts from the measured rates, and a simulated job whose workers fail.

    python scripts/dev/simulate_scale.py            (seconds)

Rates are those of the committed results; a further question takes the share of reading that it takes of a million texts. Prices
are assumptions (``DOLLARS_PER_HOUR``). The simulation assigns parts of 4,096 rows as ``inbedder.distributed`` does: a worker that
fails loses its part, which another worker computes again, and a new worker replaces it after it has started and loaded the model.
"""

from __future__ import annotations

import argparse
import heapq
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "results"

DOLLARS_PER_HOUR = {"2 CPU cores": 0.10, "1 GPU": 4.00}
"""Assumed prices of a machine."""
ROWS, ROWS_PER_PART, QUESTIONS = 1_000_000_000, 4096, 20
HOURS_BETWEEN_DEATHS, SECONDS_TO_REPLACE = 12.0, 180.0
"""Mean of one worker, on machines that can be preempted at any time."""


def read_rates() -> list[tuple[str, str, str, float]]:
    """Read model, machine, kind of machine, and texts per second."""
    rates = []
    for name, cpu in (("models-avx2.json", "AVX2"), ("models.json", "bfloat16")):
        content = json.loads((RESULTS / name).read_text(encoding="utf-8"))
        rates += [
            (one["model"], f"2 CPU cores, {cpu}", "2 CPU cores", one["texts_per_second"])
            for one in content["models"]
            if one["model"] in ("mini", "small")
        ]
    stages = json.loads((RESULTS / "gpu-nvidia-h200.json").read_text(encoding="utf-8"))["stages"]
    card = stages["environment"]["card"]
    rates.append(("mini", card, "1 GPU", stages["mini"]["cuda, bfloat16"]["mini"]["texts per second"]))
    for shape in ("OPT-1.3B", "Llama-7B"):
        measured = stages["shapes"][shape]["inbedder, 1st-gen, batches of 32"]
        rates.append((shape, card, "1 GPU", measured["texts per second"]))
    return rates


def simulate(workers: int, texts_per_second: float, seed: int = 0) -> dict[str, float]:
    """Simulate hours and lost work of a job whose workers fail at random."""
    draws = np.random.default_rng(seed)
    parts = -(-ROWS // ROWS_PER_PART)
    seconds_per_part = ROWS_PER_PART / texts_per_second
    mean_life = HOURS_BETWEEN_DEATHS * 3600
    events = [(0.0, worker) for worker in range(workers)]
    deaths = draws.exponential(mean_life, workers)
    finished_parts, lost, deaths_in_all, end = 0, 0.0, 0, 0.0
    while finished_parts < parts:
        start, worker = heapq.heappop(events)
        if deaths[worker] < start + seconds_per_part:
            deaths_in_all += 1
            lost += max(0.0, deaths[worker] - start)
            back = max(start, float(deaths[worker])) + SECONDS_TO_REPLACE
            deaths[worker] = back + draws.exponential(mean_life)
            heapq.heappush(events, (back, worker))
            continue
        finished_parts, end = finished_parts + 1, max(end, start + seconds_per_part)
        heapq.heappush(events, (start + seconds_per_part, worker))
    useful = parts * seconds_per_part
    return {
        "hours": round(end / 3600, 2),
        "hours_without_deaths": round(useful / workers / 3600, 2),
        "deaths": deaths_in_all,
        "lost_percent": round(100 * lost / useful, 3),
    }


def count_hours_of_questions() -> dict[str, float]:
    """Count the machine hours of twenty questions about a billion texts, with `mini` on two CPU cores with AVX2."""
    models = json.loads((RESULTS / "models-avx2.json").read_text(encoding="utf-8"))["models"]
    rate = next(one["texts_per_second"] for one in models if one["model"] == "mini")
    cases = json.loads((RESULTS / "benchmark-avx2.json").read_text(encoding="utf-8"))["cases"]
    speedup = next(one["ratio"] for one in cases if one["name"].startswith("mini: 10 instructions over"))
    index = json.loads((RESULTS / "index_speed.json").read_text(encoding="utf-8"))["sizes"][-1]
    share_of_further_question = (10 / speedup - 1) / 9
    one = ROWS / rate / 3600
    further_question = one * index["seconds_to_ask"] / index["seconds_to_read"]
    return {
        "one by one": round(QUESTIONS * one),
        "all in one call": round(one * (1 + (QUESTIONS - 1) * share_of_further_question)),
        "read once, each question asked of the index": round(one + QUESTIONS * further_question),
        "one further question, every text read": round(one),
        "one further question, asked of the index": round(further_question),
    }


def main() -> None:
    """Compute the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "scale.json")
    options = parser.parse_args()
    rates = read_rates()
    costs: dict[str, Any] = {
        f"{model} on {machine}": {
            "texts_per_second": round(rate, 1),
            "dollars_per_million": round(DOLLARS_PER_HOUR[kind] * 1e6 / rate / 3600, 3),
            "machine_hours_per_billion": round(ROWS / rate / 3600),
        }
        for model, machine, kind, rate in rates
    }
    questions = count_hours_of_questions()
    jobs = {f"{workers} workers": simulate(workers, rates[0][3]) for workers in (10, 100, 1000)}
    content = {
        "command": shlex.join(["python", "scripts/dev/simulate_scale.py", *sys.argv[1:]]),
        "assumptions": {
            "dollars_per_hour": DOLLARS_PER_HOUR,
            "hours_between_deaths_of_a_worker": HOURS_BETWEEN_DEATHS,
            "seconds_to_replace_it": SECONDS_TO_REPLACE,
            "rows": ROWS,
            "rows_per_part": ROWS_PER_PART,
        },
        "costs": costs,
        "questions": questions,
        "jobs": jobs,
    }
    options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(costs, indent=1), json.dumps(jobs, indent=1))


if __name__ == "__main__":
    main()
