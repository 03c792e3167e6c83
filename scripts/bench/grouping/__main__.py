"""Measure groupings.

    python -m scripts.bench.grouping counts DATA         (criteria for the number of groups)
    python -m scripts.bench.grouping apart_from DATA     (groups apart from a second question)
    python -m scripts.bench.grouping exact DATA          (the same groups on every machine)
    python -m scripts.bench.grouping no_answer DATA      (texts without an answer)
    python -m scripts.bench.grouping wording_agreement DATA --model small        (groups of several wordings)

The results are in ``evaluation/results/PART.json``; that of ``wording_agreement`` keeps the models of earlier calls.
"""

from __future__ import annotations

import json
from pathlib import Path

from inbedder import InBedder
from scripts.bench.grouping import apart_from, counts, exact, no_answer, wording_agreement
from scripts.bench.harness import ROOT, describe_run, make_parser, write_results

PARTS = {
    "counts": counts.measure,
    "apart_from": apart_from.measure,
    "exact": exact.measure,
    "no_answer": no_answer.measure,
    "wording_agreement": wording_agreement.measure,
}


def main() -> None:
    """Measure one part and write."""
    parser = make_parser(__doc__, None)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of the evaluation sets")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--dtype", help="default: the one that is fastest on this CPU")
    options = parser.parse_args()
    model = InBedder(options.model, dtype=options.dtype, cache=options.cache)
    output = options.output or ROOT / "evaluation" / "results" / f"{options.part}.json"
    results = {
        **describe_run(options),
        "model": f"{model.name} (revision {model.revision})",
        **PARTS[options.part](model, options.data),
    }
    if "models" in results and output.exists():
        results["models"] = json.loads(output.read_text(encoding="utf-8"))["models"] | results["models"]
    write_results(output, results)


if __name__ == "__main__":
    main()
