#!/usr/bin/env python3
"""What it costs that each pass has modules of its own in place of hooks on shared ones: seconds of one thread, in turns.

python scripts/measure_copies.py --machine "2-core AMD EPYC, avx512_bf16" -o scripts/results/copies.json

"shared" is how it was before: the hook stands on the model's own module during the pass and is removed after it, which several
threads cannot do at once.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from inbedder import InBedder
from inbedder.backbones import masked, transformer
from inbedder.files import atomic_write
from inbedder.words import stopwords

TEXTS, WORDS, ROUNDS = 256, 20, 15
CASES = [("mini", None, -1), ("mini", "avg-all", 3), ("small", None, -1)]


@contextmanager
def shared_modules() -> Iterator[None]:
    """Hooks on the model's own modules, for one thread."""
    hooked: list[nn.Module] = []

    def no_copy(model: Any, place: nn.Module) -> tuple[Any, nn.Module]:
        for module in hooked:
            module._forward_hooks.clear()
            module._forward_pre_hooks.clear()
        hooked[:] = [place]
        return model, place

    users: list[Any] = [transformer, masked]
    whole = transformer.own_copy
    for module in users:
        module.own_copy = no_copy
    try:
        yield
    finally:
        no_copy(None, nn.Identity())
        for module in users:
            module.own_copy = whole


def seconds(model: InBedder, texts: list[str]) -> float:
    """Of one call."""
    began = time.perf_counter()
    model.encode(texts, "What is the topic?")
    return time.perf_counter() - began


def measure(name: str, pooling: str | None, layer: int) -> dict[str, Any]:
    """The median ratio of neighbouring calls."""
    draw, words = random.Random(0), sorted(stopwords())
    texts = [" ".join(draw.choices(words, k=WORDS)) for _ in range(TEXTS if name == "mini" else TEXTS // 8)]
    model = InBedder(name, pooling=pooling, layer=layer)
    seconds(model, texts)
    ratios = []
    for turn in range(ROUNDS):
        with shared_modules():
            before = seconds(model, texts)
        own = seconds(model, texts)
        with shared_modules():
            after = seconds(model, texts)
        ratios.append(own / ((before + after) / 2))
        print(f"{name} {pooling or 'default'} turn {turn}: own / shared {ratios[-1]:.3f}", flush=True)
    quartiles = statistics.quantiles(ratios, n=4)
    return {
        "model": name,
        "pooling": model.pooling,
        "layer": layer,
        "own_per_shared": round(statistics.median(ratios), 4),
        "quartiles": [round(quartiles[0], 4), round(quartiles[2], 4)],
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--machine", default="unnamed")
    options = parser.parse_args()
    results = {
        "command": "python scripts/measure_copies.py -o scripts/results/copies.json",
        "about": f"{TEXTS} texts (small: {TEXTS // 8}) of {WORDS} words, {ROUNDS} turns of shared, own, shared",
        "machine": options.machine,
        "cases": [measure(*case) for case in CASES],
    }
    with atomic_write(options.output) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
