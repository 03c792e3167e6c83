"""Odd files, eight threads, and the memory of a million lines."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, BertConfig, BertModel

from inbedder.errors import InputError
from inbedder.io.tables import open_texts, read_table
from tests.faults.campaign import Fault, Kind, Lost, UndetectedError
from tests.faults.stage import INSTRUCTION, ROOT, Stage, load, texts_of

ODD = ROOT / "tests" / "data" / "odd"
THREADS = 8
LINES = 1_000_000
"""Of the run whose memory is measured in a full campaign."""


def odd_kind() -> Kind:
    """The odd files of tests/data/odd, and two that are too large to keep; each takes milliseconds, so none is left out."""
    expected = json.loads((ODD / "expected.json").read_text(encoding="utf-8"))
    names = [*sorted(expected), *LARGE]

    def read(fault: Fault) -> None:
        name = names[fault.number]
        fault.note(name)
        if name in LARGE:
            path = fault.folder / name
            LARGE[name](path)
            check_odd(path, {"texts": 2, "skip_bad": 2})
        else:
            check_odd(ODD / name, expected[name])

    return Kind("odd file", len(names), read, thinned=False)


LARGE: dict[str, Callable[[Path], Any]] = {
    "line_of_10_mb.txt": lambda path: path.write_text("word " * 2_000_000 + "\nshort\n", encoding="utf-8"),
    "cell_of_10_mb.csv": lambda path: path.write_text("text\n" + '"' + "a b\n" * 2_500_000 + '"\nshort\n', encoding="utf-8"),
}


def check_odd(path: Path, expected: dict[str, Any]) -> None:
    """Read an odd file whole and as a stream, with and without bad rows.

    Args:
        path: The file.
        expected: How many texts it gives, or "refused", as it is ("texts") and with bad rows left out ("skip_bad").

    Raises:
        UndetectedError: When it gives another number of texts, or none and no error, or whole and streamed texts differ.
    """
    for key, skip_bad in (("texts", False), ("skip_bad", True)):
        try:
            all_texts: list[str] | None = read_table(str(path), skip_bad=skip_bad).texts
        except InputError:
            all_texts = None
        try:
            with open_texts(str(path), skip_bad=skip_bad) as stream:
                streamed: list[str] | None = [text for _, text in stream]
        except InputError:
            streamed = None
        if all_texts != streamed:
            raise UndetectedError(f"{key}: read_table and open_texts differ: {_count(all_texts)} and {_count(streamed)}")
        if _count(all_texts) != expected[key]:
            raise UndetectedError(f"{key}: {_count(all_texts)} instead of {expected[key]}")


def _count(texts: list[str] | None) -> int | str:
    return "refused" if texts is None else len(texts)


class Threads:
    """Faults of use: one model, eight threads."""

    def __init__(self, stage: Stage) -> None:
        """Take the models.

        Args:
            stage: Where they are.
        """
        self.stage = stage
        poolings = {family: load(place).backbone.poolings for family, place in stage.models.items()}
        cases = [(family, pooling, "encode") for family, names in poolings.items() for pooling in names if pooling != "re-enc"]
        cases += [(family, None, use) for family in stage.models for use in ("encode_many", "answer", "drawn answer", "cached")]
        self.cases = cases * 2

    def kinds(self) -> list[Kind]:
        """One kind: a fault is one pooling or use of one model."""
        return [Kind("eight threads on one model", len(self.cases), self.use)]

    def use(self, fault: Fault) -> None:
        """Call a model from eight threads: all of them get what one thread gets."""
        family, pooling, use = self.cases[fault.number]
        cached = fault.folder / "cache" if use == "cached" else None
        model, uncached = load(self.stage.models[family], cached), load(self.stage.models[family])
        layer = fault.draw.choice((-1, 1))
        if pooling is not None:
            model, uncached = model.replace(pooling=pooling, layer=layer), uncached.replace(pooling=pooling, layer=layer)
        fault.note(f"{family} {pooling or ''} layer {layer} {use}")
        calls = list(itertools.product(texts_of(16, seed=fault.number), (INSTRUCTION, "What is it about?", "Is it good?")))
        right = [_call(uncached, use, *call) for call in calls]
        with ThreadPoolExecutor(THREADS) as pool:
            results = list(pool.map(lambda call: _call(model, use, *call), calls))
        num_wrong = sum(not np.array_equal(a, b) for a, b in zip(results, right, strict=True))
        if num_wrong:
            raise UndetectedError(f"{num_wrong} of {len(calls)} calls differ from those of one thread")
        if model.pipeline.store is not None and (
            model.pipeline.store.verify() or model.pipeline.store.info()[0]["entries"] != len(calls)
        ):
            raise Lost("the cache that eight threads wrote is damaged or lacks entries")


def _call(model: Any, use: str, text: str, instruction: str) -> Any:
    if use == "encode_many":
        return model.encode_many([text, text[::-1]], [instruction, "What?"])
    if use.endswith("answer"):
        return model.answer(text, instruction, temperature=1.0 if use.startswith("drawn") else 0.0)
    return model.encode(text, instruction)


def start_memory_run(folder: Path, lines: int) -> tuple[subprocess.Popen[bytes], Path]:
    """Embed many lines with a tiny model in another process.

    Args:
        folder: An empty folder.
        lines: How many.

    Returns:
        The process, and the folder in which its output grows.
    """
    folder.mkdir(parents=True)
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tests" / "data" / "golden" / "roberta")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    BertModel(BertConfig(vocab_size=len(tokenizer) + 8, **sizes)).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    with (folder / "lines.txt").open("w", encoding="utf-8") as file:
        file.writelines(f"love {number}\n" for number in range(lines))
    output = folder / "out"
    output.mkdir()
    command = [sys.executable, "-m", "inbedder", "embed", str(folder / "lines.txt"), "-o", str(output / "vectors.npy")]
    command += ["--model", str(folder / "model"), "--backbone", "embedding", "--dtype", "float32", "--batch-size", "512"]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL), output


def watch_memory(process: subprocess.Popen[bytes], output: Path, lines: int) -> dict[str, Any]:
    """Wait for a run, and compare its resident memory in the second and in the last quarter of its vectors.

    Peaks are not compared: the allocator's caches grow until about a third of the run, by an amount that differs between runs.

    Args:
        process: As ``start_memory_run`` gives it.
        output: Where its output grows.
        lines: How many vectors of 16 dimensions it writes.

    Returns:
        Lines, medians in MiB, seconds, and whether the median grew by less than 10%.
    """
    started = time.monotonic()
    whole_size = lines * 16 * 4 + 128
    status = Path(f"/proc/{process.pid}/status")
    samples: dict[int, list[float]] = {quarter: [] for quarter in range(4)}
    while process.poll() is None:
        try:
            share = sum(file.stat().st_size for file in output.iterdir()) / whole_size
        except FileNotFoundError:  # the temporary file is being renamed
            continue
        resident = [int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith("VmRSS")]
        samples[min(3, int(4 * share))] += resident  # none of a process that has ended
        time.sleep(0.05)
    second, last = (statistics.median(samples[quarter]) if samples[quarter] else 0.0 for quarter in (1, 3))
    right = process.returncode == 0 and (output / "vectors.npy").stat().st_size == whole_size
    return {
        "what": "inbedder embed of short lines of text with a tiny model, to .npy",
        "lines": lines,
        "all_vectors_written": right,
        "median_mib_second_quarter": round(second, 1),
        "median_mib_last_quarter": round(last, 1),
        "seconds": round(time.monotonic() - started, 1),
        "flat": right and 0 < last < 1.1 * second,
    }
