#!/usr/bin/env python3
"""Share of texts that inbedder.encoding.language_check finds unreadable: texts written in several languages, and English corpora.

python scripts/bench/measure_language_check.py --data FOLDER -o scripts/results/language_check.json

FOLDER holds one folder per corpus, with .jsonl.gz files whose rows have a column "text".
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from inbedder import InBedder
from inbedder.encoding.language_check import is_unreadable
from inbedder.io.files import atomic_write
from inbedder.io.tables import read_rows

LANGUAGES = Path(__file__).parents[2] / "tests" / "data" / "languages.json"
MAX_ROWS = 1000
"""Texts of a corpus, drawn with seed 0."""


def load_corpora(folder: Path) -> dict[str, list[str]]:
    """English texts by the name of their corpus."""
    texts_by_corpus = {}
    for place in sorted(folder.iterdir()):
        files = sorted(place.glob("*.jsonl.gz"), key=lambda path: ("test" not in path.name, path.name))
        texts = [row["text"] for row in read_rows(str(files[0])) if isinstance(row.get("text"), str)] if files else []
        if texts:
            texts_by_corpus[place.name] = random.Random(0).sample(texts, min(MAX_ROWS, len(texts)))
    return texts_by_corpus


def main() -> None:
    """Measure each model's tokenizer and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    sets = json.loads(LANGUAGES.read_text(encoding="utf-8")) | load_corpora(options.data)
    shares: dict[str, dict[str, float]] = {}
    for model in ("mini", "small"):
        tokenizer = InBedder(model).tokenizer.tokenizer
        shares[model] = {
            name: round(sum(is_unreadable(text, tokenizer) for text in texts) / len(texts), 4) for name, texts in sets.items()
        }
    results = {
        "command": "python scripts/bench/measure_language_check.py --data FOLDER -o scripts/results/language_check.json",
        "texts": {name: len(texts) for name, texts in sets.items()},
        "unreadable_share": shares,
    }
    with atomic_write(options.output) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
