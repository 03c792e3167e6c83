"""A job as a Ray Data pipeline: stream rows, split them into shards, embed each shard in an actor, write it.

    read (1 task per file) -> repartition (shards) -> map_batches (actors) -> write (one part per shard)

Ray restarts an actor that dies and gives it its shard again; a part's name comes from its rows, so a second write replaces the
first. Ray's own checkpoints (``ray.data.checkpoint``) are not used: they are a second record next to the parts, which is wrong
when a part is removed or a worker outlives its driver (``job_parts.deduplicate_parts``), and their filter reserves a CPU and
a GiB.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import ray
import ray.data
from ray.data.block import BlockAccessor, BlockMetadata

from inbedder import errors
from inbedder.distributed.job_folder import FAILED_FOLDER, Source, SourceFile, check_spec, clean_id
from inbedder.distributed.job_parts import PART_COLUMNS, Keys, is_done, name_part, to_keys, write_part
from inbedder.encoding.language_scope import check_language_once
from inbedder.errors import InbedderError, MissingExtraError, ModelError, TextCutWarning, UnreadableTextWarning, format_value
from inbedder.io.columns import explain_missing_text
from inbedder.io.files import atomic_write
from inbedder.io.formats import BadRow
from inbedder.io.tables import stream_rows
from inbedder.prompting.tokenization import clean_text
from inbedder.vectors.precision import PRECISIONS

READ_BATCH_ROWS = 1024
"""Rows that the reader emits at once."""
MAX_BLOCK_BYTES = 16 << 20
"""Maximum size of a block between two steps; Ray's own 128 MiB would hold a million short texts."""
IO_TASK_CPUS = 0.25
"""CPUs of a task that reads or writes."""


@dataclass(frozen=True)
class Plan:
    """A job as its workers need it."""

    source: Source
    """The input."""
    folder: Path
    """The output."""
    model: Mapping[str, Any]
    """Arguments of ``InBedder``."""
    encode: Mapping[str, Any]
    """Arguments of ``InBedder.encode`` other than the texts."""
    workers: int
    """Number of actors."""
    threads: int
    """Threads per actor."""
    gpus: float
    """GPUs per actor."""
    shard_rows: int
    """Maximum number of rows in a part."""


class PendingRows(ray.data.Datasource):
    """The rows of the input that have no vector yet: row number, id, text, and the reason why a row cannot be embedded."""

    def __init__(self, source: Source, done_keys: Any) -> None:
        """Store the input and a reference to the sorted keys of ids that are done."""
        super().__init__()
        self.source, self.done_keys = source, done_keys

    def estimate_inmemory_data_size(self) -> int | None:
        """Estimate the bytes in memory; they are unknown."""
        return None

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None) -> list[Any]:
        """Create one task per file at any parallelism: models are slower than reading."""
        source, done_keys = self.source, self.done_keys
        unknown_size = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [
            ray.data.ReadTask(lambda file=file: read_file(source, file, ray.get(done_keys)), unknown_size, build_schema(source))
            for file in source.files
        ]


def build_schema(source: Source) -> pyarrow.Schema:
    """Build the schema of rows between reader and workers."""
    id_type = pyarrow.string() if source.text_ids else pyarrow.int64()
    fields = {"row": pyarrow.int64(), "id": id_type, "text": pyarrow.string(), "reason": pyarrow.string()}
    return pyarrow.schema(list(fields.items()))


def read_file(source: Source, file: SourceFile, done_keys: Keys) -> Iterator[pyarrow.Table]:
    """Read one file as tables of ``build_schema``, without the ids of the sorted ``done_keys``."""
    schema = build_schema(source)
    records: list[dict[str, Any]] = []

    def build_table() -> pyarrow.Table:
        table = pyarrow.Table.from_pylist(records, schema)
        records.clear()
        has_vector = np.asarray(table["id"].is_valid())
        has_vector[has_vector] = is_done(to_keys(table["id"].drop_null().combine_chunks()), done_keys)
        return table.filter(~has_vector)

    for number, row in stream_rows(file.path, [file.text_column, *([source.id_column] if source.id_column else [])]):
        row_number = file.first + number
        record: dict[str, Any] = {"row": row_number, "id": None if source.id_column else row_number}
        if isinstance(row, BadRow):
            record["reason"] = str(row)
        else:
            if source.id_column:
                record["id"] = clean_id(row.get(source.id_column))
            text: Any = row.get(file.text_column)
            reason = explain_missing_text(text)
            if reason is None:
                record["text"] = clean_text(text)
            else:
                record["reason"] = f"column {format_value(file.text_column)} {reason}."
        records.append(record)
        if len(records) == READ_BATCH_ROWS:
            yield build_table()
    yield build_table()


class Embedder:
    """An actor with the model."""

    def __init__(self, folder: Path, model: Mapping[str, Any], encode: Mapping[str, Any], threads: int) -> None:
        """Load the model."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import torch

        from inbedder.embedder import InBedder

        torch.set_num_threads(min(threads, os.cpu_count() or 1))
        self.options, self.cut_texts, self.is_language_checked = encode, 0, False
        self.problem: InbedderError | None = None
        try:
            self.model = InBedder(**model)
            dtype = PRECISIONS[self.model.options.encoding.precision]
            self.vector_type = pyarrow.list_(pyarrow.from_numpy_dtype(dtype))
            check_spec(folder, self.model.spec)
        except InbedderError as error:  # raised with the first shard: when an actor fails to start, Ray prints a long report
            self.problem = ModelError(str(error)) if isinstance(error, MissingExtraError) else error

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        """Embed a shard; each row gets a vector or a reason."""
        if self.problem is not None:
            raise self.problem
        self.cut_texts = 0
        reasons = table["reason"].to_pylist()
        vectors: list[Any] = [None] * len(table)
        valid = [i for i, reason in enumerate(reasons) if reason is None]
        texts = table["text"].to_pylist()
        for i, result in zip(valid, self._embed_texts([texts[i] for i in valid]), strict=True):
            if isinstance(result, str):
                reasons[i] = result
            else:
                vectors[i] = result
        cut_texts = np.zeros(len(table), dtype=np.int64)
        cut_texts[:1] = self.cut_texts
        columns = {
            "row": table["row"],
            "id": table["id"],
            "text": table["text"],
            "embedding": pyarrow.array(vectors, self.vector_type),
            "reason": pyarrow.array(reasons, pyarrow.string()),
            "cut_texts": cut_texts,
        }
        return pyarrow.table(columns)

    def _embed_texts(self, texts: list[str]) -> list[Any]:
        """Return a vector or a reason for each text; when a batch fails, retry its halves down to the texts at fault."""
        if not texts:
            return []
        try:
            with warnings.catch_warnings(record=True) as messages, check_language_once(is_checked=self.is_language_checked):
                warnings.simplefilter("always", TextCutWarning)
                vectors = list(self.model.encode(texts, show_progress_bar=False, **self.options))
        except Exception as error:  # the other rows continue
            if len(texts) == 1:
                return [f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"]
            half = len(texts) // 2
            return self._embed_texts(texts[:half]) + self._embed_texts(texts[half:])
        self.is_language_checked = True
        self.cut_texts += sum(warning.message.count for warning in messages if isinstance(warning.message, TextCutWarning))
        for message in messages:
            if isinstance(message.message, UnreadableTextWarning):
                warnings.warn(message.message, stacklevel=2)
        return vectors


class PartWriter(ray.data.Datasink[dict[str, int]]):
    """A sink that writes shards as parts, and rows without a vector to files of failures."""

    def __init__(self, folder: Path) -> None:
        """Start with zero counts."""
        self.folder, self.computed, self.cut_texts = folder, 0, 0

    def write(self, blocks: Any, ctx: Any) -> dict[str, int]:
        """Write each block as a part, completely or not at all."""
        computed = cut_texts = 0
        for block in blocks:
            table = BlockAccessor.for_block(block).to_arrow()
            if not len(table):
                continue
            rows = np.asarray(table["row"].to_numpy())
            name = name_part(rows)
            has_vector = np.asarray(table["reason"].is_null())
            if has_vector.any():
                write_part(self.folder / f"{name}.parquet", table.filter(has_vector).select(PART_COLUMNS))
            if not has_vector.all():
                failures = table.filter(~has_vector).select(["row", "id", "reason"]).to_pylist()
                with atomic_write(self.folder / FAILED_FOLDER / f"{name}.jsonl") as temporary:
                    temporary.write_text("".join(json.dumps(failure) + "\n" for failure in failures), encoding="utf-8")
            computed += int(has_vector.sum())
            cut_texts += sum(table["cut_texts"].to_pylist())
        return {"computed": computed, "cut_texts": cut_texts}

    def on_write_complete(self, write_result: Any) -> None:
        """Sum the counts of all tasks."""
        self.computed = sum(counts["computed"] for counts in write_result.write_returns)
        self.cut_texts = sum(counts["cut_texts"] for counts in write_result.write_returns)


def run_pipeline(plan: Plan, done_keys: Keys, show_progress_bar: bool) -> PartWriter:
    """Embed the rows whose keys are not done, in a running Ray; return the sink, with its counts, or raise a worker's error."""
    context = ray.data.DataContext.get_current()
    previous = context.enable_progress_bars, context.target_max_block_size
    context.enable_progress_bars, context.target_max_block_size = show_progress_bar, MAX_BLOCK_BYTES
    sink = PartWriter(plan.folder)
    try:
        tasks = len(plan.source.files)  # without a number, Ray splits the rows of one task into hundreds of blocks
        rows = ray.data.read_datasource(
            PendingRows(plan.source, ray.put(done_keys)), num_cpus=IO_TASK_CPUS, override_num_blocks=tasks
        )
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
        embedded.write_datasink(sink, ray_remote_args={"num_cpus": IO_TASK_CPUS})
    except (ray.exceptions.RayError, RuntimeError) as error:
        raise _translate_error(error) from error
    finally:
        context.enable_progress_bars, context.target_max_block_size = previous
    return sink


def _translate_error(error: Exception) -> InbedderError:
    """Find the error that a worker raised in Ray's report of it."""
    reported = re.findall(r"^inbedder\.errors\.(\w+): (.+)$", str(error), re.MULTILINE)
    kind = getattr(errors, reported[-1][0], None) if reported else None
    if isinstance(kind, type) and issubclass(kind, InbedderError) and kind is not MissingExtraError:
        return kind(reported[-1][1])
    last = [line for line in str(error).splitlines() if line.strip()][-1:] or [type(error).__name__]
    return ModelError(f"A worker failed: {reported[-1][1] if reported else last[0]} Finished parts are kept; rerun to resume.")
