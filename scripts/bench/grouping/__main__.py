"""Measure groupings of labelled sets with `mini`.

    python -m scripts.bench.grouping counts DATA         (criteria for the number of groups)
    python -m scripts.bench.grouping apart_from DATA     (groups apart from a second question)
    python -m scripts.bench.grouping no_answer DATA      (texts without an answer)

The results are in ``evaluation/results/PART.json``.
"""

from __future__ import annotations

from pathlib import Path

from inbedder import InBedder
from scripts.bench.grouping import apart_from, counts, no_answer
from scripts.bench.harness import ROOT, describe_run, make_parser, write_results

PARTS = {"counts": counts.measure, "apart_from": apart_from.measure, "no_answer": no_answer.measure}


def main() -> None:
    """Measure one part and write."""
    parser = make_parser(__doc__, None)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of the evaluation sets")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--dtype", help="default: the one that is fastest on this CPU")
    options = parser.parse_args()
    model = InBedder(dtype=options.dtype, cache=options.cache)
    results = {**describe_run(options), "model": f"mini (revision {model.revision})", **PARTS[options.part](model, options.data)}
    write_results(options.output or ROOT / "evaluation" / "results" / f"{options.part}.json", results)


if __name__ == "__main__":
    main()
