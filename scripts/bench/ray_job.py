#!/usr/bin/env python3
"""Measure jobs with Ray Data: the speed of two workers and of one, and memory over a million rows.

    python -m scripts.bench.ray_job                              (both parts; about 40 minutes on 2 cores)
    python -m scripts.bench.ray_job --only speed --rounds 5
    python -m scripts.bench.ray_job --only memory --memory-rows 20000 -o /tmp/ray.json

Speed: both jobs encode the same texts with the bundled model, one thread per worker, while Ray is running. Rounds alternate which
goes first. The time is that of the whole job with loading; the rate is that between the first part and the last, without loading.

Memory: a BERT with random weights and 16 dimensions embeds short rows from a csv file. Private and shared memory of the driver,
the workers and Ray's own processes are read from /proc every second. Memory is flat if the last quarter of the time needs as
much as the second quarter; the first quarter includes loading.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from pyarrow import parquet
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from inbedder.distributed.job import Machines, connect_ray, embed_job
from scripts.bench.benchmark_inputs import RESULTS, WORDS
from scripts.bench.harness import describe_run, make_parser, write_results

QUESTION = "What does the customer complain about?"


def write_texts(path: Path, rows: int, words: int) -> Path:
    """Write a csv file of distinct texts with the same number of words."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text"])
        for i in range(rows):
            writer.writerow([" ".join([str(i), *(WORDS[(i * 7 + 3 * j) % len(WORDS)] for j in range(words))])])
    return path


def make_tiny_model(folder: Path) -> Path:
    """Make a BERT of one small layer with random weights, and its tokenizer."""
    letters = [chr(code) for code in range(33, 127)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *WORDS]
    backend = Tokenizer(models.WordPiece({word: i for i, word in enumerate(dict.fromkeys(vocabulary))}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=256, **size)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def measure_speed(folder: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Time the same job with one worker and with two."""
    source, warm_up = write_texts(folder / "speed.csv", rows, 60), write_texts(folder / "short.csv", max(1, rows // 20), 60)
    results: list[dict[str, Any]] = []
    with connect_ray(Machines(workers=2)):
        for number in range(-1, rounds):  # the first is a short warm-up
            texts, count = (warm_up, max(1, rows // 20)) if number < 0 else (source, rows)
            pair = {}
            for workers in (1, 2) if number % 2 == 0 else (2, 1):
                output = folder / f"speed-{number}-{workers}"
                start = time.perf_counter()
                result = embed_job(texts, output, QUESTION, machines=Machines(workers, threads=1), shard_rows=max(1, count // 40))
                pair[f"seconds_{workers}"] = round(time.perf_counter() - start, 3)
                assert result.embedded == count
                pair[f"rate_{workers}"] = round(compute_rate(output), 2)
            print(number, pair, flush=True)
            results += [pair] if number >= 0 else []
    ratios = [case["seconds_1"] / case["seconds_2"] for case in results]
    steady = [case["rate_2"] / case["rate_1"] for case in results]
    return {
        "name": "2 workers / 1 worker, mini, one thread each",
        "goal": 1.7,
        "rows": rows,
        "ratio": round(statistics.median(ratios), 3),
        "smallest": round(min(ratios), 3),
        "largest": round(max(ratios), 3),
        "ratio_without_loading": round(statistics.median(steady), 3),
        "rounds": results,
    }


def compute_rate(folder: Path) -> float:
    """Compute rows per second between the first part and the last."""
    parts = sorted((path.stat().st_mtime, parquet.read_metadata(path).num_rows) for path in folder.glob("part-*.parquet"))
    return sum(rows for _, rows in parts[1:]) / max(1e-9, parts[-1][0] - parts[0][0])


def list_processes() -> dict[int, tuple[str, int, int]]:
    """List kind, private and shared KiB of this process and its descendants."""
    parents: dict[int, int] = {}
    results: dict[int, tuple[str, int, int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        parents[int(folder.name)] = int(lines["PPid"])
        private, shared = (int(lines[key].split()[0]) if key in lines else 0 for key in ("RssAnon", "RssShmem"))
        kind = "models" if b"Embedder" in command else "tasks" if command.startswith(b"ray::") else "ray"
        results[int(folder.name)] = ("driver" if int(folder.name) == os.getpid() else kind, private, shared)

    def is_descendant(process: int) -> bool:
        while process in parents and process != os.getpid():
            process = parents[process]
        return process == os.getpid()

    return {process: size for process, size in results.items() if is_descendant(process)}


def measure_memory(folder: Path, rows: int, workers: int) -> dict[str, Any]:
    """Measure the memory of a job over many short rows, second by second."""
    source, model, output = write_texts(folder / "memory.csv", rows, 5), make_tiny_model(folder / "tiny"), folder / "memory"
    samples: list[dict[str, float]] = []
    stop_event = threading.Event()

    def watch() -> None:
        start = time.monotonic()
        while not stop_event.wait(1):
            sums = dict.fromkeys(("driver", "models", "tasks", "ray", "shared"), 0.0)
            for kind, private, shared in list_processes().values():
                sums[kind] += private / 1024
                sums["shared"] = max(sums["shared"], shared / 1024)  # the same pages in many processes
            sums["total"] = sum(sums.values())
            parts = len(list(output.glob("part-*.parquet")))
            samples.append({"second": time.monotonic() - start, "parts": parts, **sums})

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    machines = Machines(workers, threads=1)
    try:
        result = embed_job(source, output, QUESTION, model=model, machines=machines, batch_size=256, dtype="float32")
    finally:
        stop_event.set()
        watcher.join()
    working = [sample for sample in samples if sample["parts"]]
    quarters = [working[i * len(working) // 4 : (i + 1) * len(working) // 4] for i in range(4)]
    medians = {
        key: [round(statistics.median(one[key] for one in quarter), 1) if quarter else None for quarter in quarters]
        for key in ("driver", "models", "tasks", "ray", "shared", "total")
    }
    step = max(1, len(samples) // 200)
    second, last = medians["total"][1], medians["total"][3]
    return {
        "name": f"{rows} short rows, BERT of 16 dimensions, {workers} workers",
        "rows": result.rows,
        "embedded": result.embedded,
        "seconds": round(time.perf_counter() - start, 1),
        "unit": "MiB",
        "medians_of_quarters": medians,
        "last_quarter_over_second": round(last / second, 3) if second and last else None,
        "samples": [{key: round(value, 1) for key, value in sample.items()} for sample in samples[::step]],
    }


def main() -> None:
    """Measure one part or both; the file keeps the other part."""
    parser = make_parser(__doc__, RESULTS / "ray.json")
    parser.add_argument("--only", choices=["speed", "memory"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--speed-rows", type=int, default=8000)
    parser.add_argument("--memory-rows", type=int, default=1_000_000)
    parser.add_argument("--memory-workers", type=int, default=2)
    options = parser.parse_args()
    content = json.loads(options.output.read_text(encoding="utf-8")) if options.output.is_file() else {}
    run = describe_run(options, ("ray", "torch", "transformers", "pyarrow", "numpy"))
    for name in ("speed", "memory"):
        if options.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            if name == "speed":
                results = measure_speed(Path(folder), options.speed_rows, options.rounds)
            else:
                results = measure_memory(Path(folder), options.memory_rows, options.memory_workers)
        content[name] = run | results
        print({key: value for key, value in results.items() if key not in ("samples", "rounds")}, flush=True)
        write_results(options.output, content)


if __name__ == "__main__":
    main()
