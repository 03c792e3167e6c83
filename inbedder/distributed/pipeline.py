"""A job as a Ray Data pipeline: rows are read as a stream, cut into shards, embedded by actors that hold the model, written.

    read (1 task per file) -> repartition (shards) -> map_batches (actors) -> write (one part per shard)

Ray restarts an actor that dies and gives it its shard again; a part's name comes from its rows, so a second write replaces the
first. Ray's own checkpoints (``ray.data.checkpoint``) are not used: they are a second set of books beside the parts, which lie
when a part is removed or a worker outlives its driver, and their filter reserves a CPU and a GiB (``folder.deduplicate_parts``).
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import ray
import ray.data
from ray.data.block import BlockAccessor, BlockMetadata

from inbedder import errors
from inbedder.distributed.job_folder import FAILED_PARTS, Keys, Source, SourceFile, check_spec, clean_id, is_done, keys_of
from inbedder.errors import InbedderError, MissingExtraError, ModelError, TextCutWarning, shown
from inbedder.io.columns import why_no_text
from inbedder.io.files import atomic_write
from inbedder.io.formats import BadRow
from inbedder.io.tables import stream_rows
from inbedder.prompting.tokenization import clean_text

ROWS_READ = 1024
"""Rows that the reader hands on at once."""
BLOCK_BYTES = 16 << 20
"""Largest block between two steps; Ray's own 128 MiB would hold a million short texts."""
SMALL = 0.25
"""Of a CPU, for reading and for writing."""


@dataclass(frozen=True)
class Plan:
    """What the workers have to know."""

    source: Source
    """The input."""
    folder: Path
    """The output."""
    model: Mapping[str, Any]
    """Arguments of ``InBedder``."""
    encode: Mapping[str, Any]
    """Arguments of ``InBedder.encode`` beside the texts."""
    workers: int
    """Actors."""
    threads: int
    """Of each actor."""
    gpus: float
    """Of each actor."""
    shard_rows: int
    """Most rows in a part."""


class Rows(ray.data.Datasource):
    """The rows of the input that have no vector yet: row number, id, text, and what is wrong with it."""

    def __init__(self, source: Source, done: Any) -> None:
        """Take the input and a reference to the sorted keys of ids that are done."""
        super().__init__()
        self.source, self.done = source, done

    def estimate_inmemory_data_size(self) -> int | None:
        """Bytes in memory; not known."""
        return None

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None) -> list[Any]:
        """One task per file, whatever parallelism is asked for: models are slower than reading."""
        source, done = self.source, self.done
        nothing_known = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [
            ray.data.ReadTask(lambda file=file: read_file(source, file, ray.get(done)), nothing_known, schema_of(source))
            for file in source.files
        ]


def schema_of(source: Source) -> pyarrow.Schema:
    """Of rows between reader and workers."""
    kind = pyarrow.string() if source.text_ids else pyarrow.int64()
    fields = {"row": pyarrow.int64(), "id": kind, "text": pyarrow.string(), "reason": pyarrow.string()}
    return pyarrow.schema(list(fields.items()))


def read_file(source: Source, file: SourceFile, done: Keys) -> Iterator[pyarrow.Table]:
    """Read one file.

    Args:
        source: The input it belongs to.
        file: The file.
        done: Sorted keys of ids to leave out.

    Yields:
        Tables of ``schema_of``.
    """
    schema = schema_of(source)
    waiting: list[dict[str, Any]] = []

    def table() -> pyarrow.Table:
        found = pyarrow.Table.from_pylist(waiting, schema)
        waiting.clear()
        known = np.asarray(found["id"].is_valid())
        known[known] = is_done(keys_of(found["id"].drop_null().combine_chunks()), done)
        return found.filter(~known)

    for number, row in stream_rows(file.path, [file.text_column, *([source.id_column] if source.id_column else [])]):
        place = file.first + number
        if isinstance(row, BadRow):
            waiting.append({"row": place, "id": None if source.id_column else place, "reason": str(row)})
        else:
            text: Any = row.get(file.text_column)
            reason = why_no_text(text)
            result = {"text": clean_text(text)} if reason is None else {"reason": f"column {shown(file.text_column)} {reason}."}
            waiting.append({"row": place, "id": clean_id(row.get(source.id_column)) if source.id_column else place, **result})
        if len(waiting) == ROWS_READ:
            yield table()
    yield table()


class Embedder:
    """An actor with the model."""

    def __init__(self, folder: Path, model: Mapping[str, Any], encode: Mapping[str, Any], threads: int) -> None:
        """Load the model, once per actor."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import torch

        from inbedder.embedder import InBedder

        torch.set_num_threads(min(threads, os.cpu_count() or 1))
        self.options, self.cut = encode, 0
        self.problem: InbedderError | None = None
        try:
            self.model = InBedder(**model)
            check_spec(folder, self.model.spec)
        except InbedderError as error:  # raised with the first shard: of an actor that fails to start Ray says so at length
            self.problem = ModelError(str(error)) if isinstance(error, MissingExtraError) else error

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        """Embed a shard: each row gets a vector or a reason."""
        if self.problem is not None:
            raise self.problem
        self.cut = 0
        reasons = table["reason"].to_pylist()
        vectors: list[Any] = [None] * len(table)
        good = [i for i, reason in enumerate(reasons) if reason is None]
        texts = table["text"].to_pylist()
        for i, found in zip(good, self._embed([texts[i] for i in good]), strict=True):
            if isinstance(found, str):
                reasons[i] = found
            else:
                vectors[i] = found
        cut = np.zeros(len(table), dtype=np.int64)
        cut[:1] = self.cut
        columns = {
            "row": table["row"],
            "id": table["id"],
            "text": table["text"],
            "embedding": pyarrow.array(vectors, pyarrow.list_(pyarrow.float32())),
            "reason": pyarrow.array(reasons, pyarrow.string()),
            "cut": cut,
        }
        return pyarrow.table(columns)

    def _embed(self, texts: list[str]) -> list[Any]:
        """A vector of each text, or why there is none; halves of what fails are tried again, down to the texts at fault."""
        if not texts:
            return []
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", TextCutWarning)
                vectors = list(self.model.encode(texts, show_progress_bar=False, **self.options))
        except Exception as error:  # whatever it is, the other rows go on
            if len(texts) == 1:
                return [f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"]
            half = len(texts) // 2
            return self._embed(texts[:half]) + self._embed(texts[half:])
        self.cut += sum(warning.message.count for warning in caught if isinstance(warning.message, TextCutWarning))
        return vectors


class Parts(ray.data.Datasink[dict[str, int]]):
    """Writes shards as parts, and rows without a vector beside them."""

    def __init__(self, folder: Path) -> None:
        """Take the job's folder."""
        self.folder, self.computed, self.cut = folder, 0, 0

    def write(self, blocks: Any, ctx: Any) -> dict[str, int]:
        """Write each block as a part, whole or not at all."""
        computed = cut = 0
        for block in blocks:
            table = BlockAccessor.for_block(block).to_arrow()
            if not len(table):
                continue
            rows = np.asarray(table["row"].to_numpy())
            name = f"part-{rows[0]:012d}-{sha256(rows.tobytes()).hexdigest()[:12]}"
            good = np.asarray(table["reason"].is_null())
            if good.any():
                with atomic_write(self.folder / f"{name}.parquet") as temporary:
                    whole = table.filter(good).select(["id", "text", "embedding"])
                    pyarrow.parquet.write_table(whole, temporary, write_page_checksum=True)
            if not good.all():
                failed = table.filter(~good).select(["row", "id", "reason"]).to_pylist()
                with atomic_write(self.folder / FAILED_PARTS / f"{name}.jsonl") as temporary:
                    temporary.write_text("".join(json.dumps(failure) + "\n" for failure in failed), encoding="utf-8")
            computed, cut = computed + int(good.sum()), cut + sum(table["cut"].to_pylist())
        return {"computed": computed, "cut": cut}

    def on_write_complete(self, write_result: Any) -> None:
        """Add up what the tasks wrote."""
        self.computed = sum(result["computed"] for result in write_result.write_returns)
        self.cut = sum(result["cut"] for result in write_result.write_returns)


def run_pipeline(plan: Plan, done: Keys, show_progress_bar: bool) -> Parts:
    """Compute what is missing; Ray must be up.

    Args:
        plan: The job.
        done: Sorted keys of ids that have a vector.
        show_progress_bar: Whether Ray shows its bars.

    Returns:
        The sink, with its counts.

    Raises:
        InbedderError: As ``InBedder`` raises it in a worker, or when the pipeline fails.
    """
    context = ray.data.DataContext.get_current()
    kept = context.enable_progress_bars, context.target_max_block_size
    context.enable_progress_bars, context.target_max_block_size = show_progress_bar, BLOCK_BYTES
    sink = Parts(plan.folder)
    try:
        tasks = len(plan.source.files)  # a number of our own, or Ray cuts what one task reads into hundreds of blocks
        rows = ray.data.read_datasource(Rows(plan.source, ray.put(done)), num_cpus=SMALL, override_num_blocks=tasks)
        shards = rows.repartition(target_num_rows_per_block=plan.shard_rows, strict=True)
        embedded = shards.map_batches(
            Embedder,
            fn_constructor_kwargs={"folder": plan.folder, "model": plan.model, "encode": plan.encode, "threads": plan.threads},
            batch_size=None,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=plan.workers),
            num_cpus=1,
            num_gpus=plan.gpus,
        )
        embedded.write_datasink(sink, ray_remote_args={"num_cpus": SMALL})
    except (ray.exceptions.RayError, RuntimeError) as error:
        raise _in_our_words(error) from error
    finally:
        context.enable_progress_bars, context.target_max_block_size = kept
    return sink


def _in_our_words(error: Exception) -> InbedderError:
    """The error that a worker raised, found in Ray's account of it."""
    found = re.findall(r"^inbedder\.errors\.(\w+): (.+)$", str(error), re.MULTILINE)
    kind = getattr(errors, found[-1][0], None) if found else None
    if isinstance(kind, type) and issubclass(kind, InbedderError) and kind is not MissingExtraError:
        return kind(found[-1][1])
    last = [line for line in str(error).splitlines() if line.strip()][-1:] or [type(error).__name__]
    return ModelError(f"A worker failed: {found[-1][1] if found else last[0]} What is written stays; run it again to go on.")
