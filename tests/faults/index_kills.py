#!/usr/bin/env python3
"""Kill processes (SIGKILL) at random points of building, adding to, updating and compacting an index, and check what is left.

    python tests/faults/index_kills.py --kills 50 -o scripts/results/index_kills.json

After each kill the index has to open, hold every row whose commit was told of, and be found whole by ``verify`` (a build that did
not finish is told of as such); the same call made again has to end with every row there once. Processes are forked from one that
has loaded torch and a tiny random model and has never touched LanceDB, which does not bear forks.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROWS, BATCH = 240, 20
OPERATIONS = ("build", "add", "update", "compact")
ONLY_UNFINISHED = "did not finish"
FORK = multiprocessing.get_context("fork")
FIRST = [{"id": f"a{number}", "text": f"The first text number {number}", "stars": number % 5} for number in range(ROWS)]
SECOND = [{"id": f"b{number}", "text": f"The second text number {number}", "stars": number % 5} for number in range(ROWS)]
CHANGED = [{"id": row["id"], "text": f"{row['text']} has changed"} for row in FIRST]
EXPECTED = {
    "build": [row["text"] for row in FIRST],
    "add": [row["text"] for row in FIRST + SECOND],
    "update": [row["text"] for row in CHANGED],
    "compact": [row["text"] for row in FIRST + SECOND],
}


def perform(operation: str, folder: Path, model: Any, tell: Callable[[Any], None]) -> None:
    """Do it, and tell of each commit how many rows there are (of an update: have changed) since the beginning."""
    from inbedder.search import index as home
    from inbedder.search.lance_engine import import_lancedb
    from inbedder.search.storage import Storage

    import_lancedb()
    home.BATCH_ROWS = BATCH
    num_rows = 0

    def telling(method: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def commit(storage: Storage, rows: Any) -> None:
            nonlocal num_rows
            method(storage, rows)
            num_rows += len(rows)
            tell(num_rows)

        return commit

    Storage.append, Storage.merge = telling(Storage.append), telling(Storage.merge)
    tell(0)
    if operation == "build":
        home.Index.create(folder, FIRST, model)
        return
    index = home.Index.open(folder, model)
    if operation == "add":
        index.add(SECOND)
    elif operation == "update":
        index.update(CHANGED)
    else:
        index.compact(timedelta(milliseconds=1))


def prepare(operation: str, folder: Path, model: Any) -> None:
    """The index that an operation begins with."""
    from inbedder.search import index as home

    home.BATCH_ROWS = BATCH
    if operation != "build":
        index = home.Index.create(folder, FIRST, model)
        if operation == "compact":
            index.add(SECOND)


def examine(operation: str, folder: Path, model: Any, rows_reported: int) -> list[str]:
    """What is wrong after a kill, and after the same call was made again."""
    from inbedder.search import Index
    from inbedder.search.storage import Storage

    errors = []
    if operation != "build" or rows_reported or Storage._open_table(folder) is not None:
        index = Index.open(folder, model)
        errors += [line for line in index.verify() if not (operation == "build" and ONLY_UNFINISHED in line)]
        texts = index.storage.table.to_arrow()["text"].to_pylist()
        rows_before = {"build": 0, "add": ROWS, "update": 0, "compact": 2 * ROWS}[operation]
        rows_held = sum(text.endswith("changed") for text in texts) if operation == "update" else len(texts)
        if rows_held < rows_before + rows_reported:
            errors.append(f"{rows_before + rows_reported} rows were committed and {rows_held} are there.")
    is_built = folder.exists() and Storage._open_table(folder) is not None and Storage.open(folder).is_built
    if operation != "build" or not is_built:
        perform(operation, folder, model, lambda _: None)
    index = Index.open(folder, model)
    errors += index.verify()
    if Counter(index.storage.table.to_arrow()["text"].to_pylist()) != Counter(EXPECTED[operation]):
        errors.append("After the call was made again, the rows are not the expected ones.")
    if not len(index.search("text number 7", k=3)):
        errors.append("A search found nothing.")
    return errors


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call in a forked process; a failure there is a string."""
    parent_end, child_end = FORK.Pipe()

    def call() -> None:
        try:
            child_end.send(function(*arguments))
        except BaseException as error:
            child_end.send([f"{type(error).__name__}: {error}"])

    process = FORK.Process(target=call)
    process.start()
    child_end.close()
    try:
        return parent_end.recv()
    except EOFError:
        return ["The process ended without a result."]
    finally:
        process.join()


def run_and_kill(operation: str, folder: Path, model: Any, delay: float | None) -> tuple[int, float, bool]:
    """Rows whose commit was told of, seconds from the beginning to the end, and whether the process was still at work."""
    parent_end, child_end = FORK.Pipe()
    process = FORK.Process(target=perform, args=(operation, folder, model, child_end.send))
    process.start()
    child_end.close()
    parent_end.recv()
    start_time = time.monotonic()
    process.join(delay)
    alive = process.is_alive()
    if alive:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    rows_reported = 0
    try:
        while parent_end.poll():
            rows_reported = parent_end.recv()
    except EOFError:
        pass
    return rows_reported, time.monotonic() - start_time, alive


def campaign(model: Any, kills: int, seed: int, operations: tuple[str, ...] = OPERATIONS) -> dict[str, Any]:
    """Kill so many processes in all, at points drawn evenly from each operation's duration."""
    draw = random.Random(seed)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for number, operation in enumerate(operations):
            start = Path(place) / operation
            in_child(prepare, operation, start, model)
            trial = Path(place) / "trial"
            if start.exists():
                shutil.copytree(start, trial)
            _, seconds, _ = run_and_kill(operation, trial, model, None)
            shutil.rmtree(trial)
            count = kills // len(operations) + (number < kills % len(operations))
            killed, errors, rows = 0, [], []
            for _ in range(count):
                if start.exists():
                    shutil.copytree(start, trial)
                delay = draw.uniform(0, seconds)
                rows_reported, _, alive = run_and_kill(operation, trial, model, delay)
                killed += alive
                rows.append(rows_reported)
                errors += [f"after {delay:.3f} s: {line}" for line in in_child(examine, operation, trial, model, rows_reported)]
                shutil.rmtree(trial, ignore_errors=True)
            results[operation] = {"runs": count, "killed_at_work": killed, "rows_told_of": rows, "wrong": errors}
    return results


def make_tiny_model(folder: Path) -> Any:
    """A random masked LM of 32 dimensions."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = sorted({word for row in FIRST + SECOND for word in row["text"].split()} | {"has", "changed", "What", "is", "it"})
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["[PAD]", "[UNK]", "[MASK]", *words])}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=len(words) + 3, max_position_embeddings=128, **size)
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    from inbedder import InBedder

    return InBedder(folder)


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        results = campaign(make_tiny_model(Path(place)), options.kills, options.seed)
    description = {
        "command": " ".join(["python tests/faults/index_kills.py", *sys.argv[1:]]),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "rows": ROWS,
        "rows_per_commit": BATCH,
    }
    text = json.dumps({**description, **results}, indent=1)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")
    print(text)
    sys.exit(any(result["wrong"] for result in results.values()))


if __name__ == "__main__":
    main()
