#!/usr/bin/env python3
"""How many tokens mini reads for each text: in the paper's prompt, in the compact one, and with text and question read apart.

python scripts/measure_prompts.py DATA -o finetune/results/mini_prompts.json
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evaluation.tasks import Data, build_tasks
from evaluation.tasks.criteria_clustering import CriteriaClustering
from inbedder import InBedder
from inbedder.prompting import get_template
from inbedder.tokenization import PromptTokenizer

HEADER = ["set", "the paper's prompt", "compact", "compact, read apart"]


def tokens(model: InBedder, template: str, texts: Sequence[str], question: str) -> tuple[float, float]:
    """Tokens of a text's prompt on average: all of them, and without those of the question, which is read once for all texts."""
    masks = model.tokenizer.mask_length
    prompts = PromptTokenizer(model.tokenizer.tokenizer, get_template(template), model.tokenizer.max_length, masks)(
        texts, [question] * len(texts)
    )
    whole = float(np.mean([len(prompt.ids) for prompt in prompts]))
    return whole, float(np.mean([len(prompt.ids) - (prompt.response - prompt.instruction[0]) for prompt in prompts]))


def main() -> None:
    """Count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=1000)
    options = parser.parse_args()
    model, rows = InBedder("mini"), [HEADER]
    for task in build_tasks(Data(options.data, limit=options.limit), ["two-criteria"]):
        assert isinstance(task, CriteriaClustering)
        corpus = task.corpus
        long = [tokens(model, "inbedder", corpus.texts, question)[0] for question in corpus.instructions]
        compact = [tokens(model, "compact", corpus.texts, question) for question in corpus.instructions]
        whole, apart = np.mean(compact, axis=0)
        rows.append([task.info.name.partition(" (")[0], f"{np.mean(long):.1f}", f"{whole:.1f}", f"{apart:.1f}"])
    command = f"python scripts/measure_prompts.py DATA --limit {options.limit} -o {shlex.quote(str(options.output))}"
    options.output.write_text(json.dumps({"command": command, "table": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
