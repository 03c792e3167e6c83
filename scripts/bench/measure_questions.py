#!/usr/bin/env python3
"""How far a model takes each question of the evaluation to be about the whole of a text (``inbedder/encoding/base_weights.py``).

python scripts/bench/measure_questions.py -o finetune/results/mini_questions.json

Questions are those of ``prompts/instructions.yaml``, of ``prompts/evaluation.yaml`` and of ``measure_neighbours.py``, and the
correct ones of ``prompts/robustness.yaml``, and some about one aspect of a text.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measure_neighbours import PROBLEM, RESULT, TOPIC

from inbedder import InBedder
from inbedder.encoding.base_weights import PROBES, compute_base_weight
from inbedder.prompting.templates import read_prompts
from inbedder.vectors import compute_row_cosines

ASPECTS = (
    "What does the text say about the price?",
    "What is said about the service?",
    "How is the food?",
    "What about the price?",
    "What do they think of the staff?",
)
LEFT_OUT = ("original", "implicit", "incorrect")


def list_questions(prompts: Any) -> Iterator[str]:
    """All questions of a table of prompts, however deep."""
    if isinstance(prompts, str):
        yield prompts
    elif isinstance(prompts, dict):
        for name, inner in prompts.items():
            if name not in LEFT_OUT:
                yield from list_questions(inner)
    else:
        for inner in prompts:
            yield from list_questions(inner)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    model = InBedder(options.model, add_generic=False)
    generic, rows = np.asarray(model.encode(PROBES)), []
    questions = [
        question for name in ("instructions", "evaluation", "robustness") for question in list_questions(read_prompts(name))
    ]
    for question in dict.fromkeys([*questions, *TOPIC, *PROBLEM, *RESULT, *ASPECTS]):
        vectors = np.asarray(model.encode(PROBES, question))
        rows.append((float(compute_row_cosines(vectors, generic).mean()), question, compute_base_weight(vectors, generic)))
    table = [[question, f"{nearness:.2f}", f"{weight:.2f}"] for nearness, question, weight in sorted(rows, reverse=True)]
    table = [["question", "mean cosine", "weight"], *table]
    command = f"python scripts/bench/measure_questions.py --model {options.model} -o {options.output}"
    options.output.write_text(json.dumps({"command": command, "table": table}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
