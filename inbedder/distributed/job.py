"""Large jobs: a table in, a folder of parquet parts out, by Ray Data on one machine or many.

A job survives what happens to it. A worker that dies is replaced and its rows are given to another; a killed job, run again,
computes only the rows that have no vector yet; a row that cannot be embedded goes to a side file with the reason. At the end the
parts are read once more: each id is there exactly once, and vectors and failures together are the rows of the input, or the job
fails and says so. Parts are keyed by id, not in order: sort by id where the order matters. See ``folder`` for what is in it.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from inbedder import __version__
from inbedder.distributed.job_folder import (
    FAILED,
    Keys,
    Source,
    clear_failures,
    deduplicate_parts,
    gather_failures,
    open_job,
    survey,
)
from inbedder.errors import InbedderError, InputError, MissingExtraError, TextCutWarning, shown
from inbedder.io.files import is_same_file
from inbedder.models.bundled import ADAPTERS
from inbedder.options import Options
from inbedder.prompting.templates import resolve_instruction

SPARE_CPUS = 2
"""For reading, cutting and writing, beside one per worker."""
STORE_BYTES = 1 << 30
"""Shared memory for rows between two steps, of a Ray that is started here."""
SHARD_ROWS = 4096
"""Most rows in a part."""


@dataclass(frozen=True)
class JobResult:
    """What a run of a job came to."""

    folder: Path
    """The job's."""
    rows: int
    """Of the input."""
    embedded: int
    """Rows that have a vector now."""
    computed: int
    """Of these, by this run."""
    failed: int
    """Rows without one; ``_failed.jsonl`` says why."""
    text_columns: tuple[str, ...]
    """The column of the texts of each file, asked for or guessed."""


@dataclass(frozen=True)
class Machines:
    """Where a job runs."""

    workers: int = 1
    """Actors that hold the model."""
    address: str | None = None
    """Of a running Ray cluster; None starts Ray on this machine. A cluster reads input and output at the same paths."""
    threads: int | None = None
    """Of each worker; None is ``OMP_NUM_THREADS``, else cores divided by workers."""
    gpus: float | None = None
    """Of each worker; None is one where there are GPUs and the device does not say otherwise."""


def embed_job(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    instruction: str | None = None,
    *,
    model: str | os.PathLike[str] = "mini",
    machines: Machines | None = None,
    text_column: str | None = None,
    id_column: str | None = None,
    batch_size: int = 32,
    normalize_embeddings: bool = False,
    shard_rows: int | None = None,
    show_progress_bar: bool | None = None,
    **options: Any,
) -> JobResult:
    """Embed a table into a folder of parquet parts with the columns id, text and embedding (float32, d numbers per row).

    Args:
        source: A .csv, .tsv, .jsonl, .parquet or .txt file, or a folder of such files.
        output: A new folder, or that of the same job, which goes on where it stopped.
        instruction: A question, ``@name``, or None for no question, as ``InBedder.encode`` takes it.
        model: As for ``InBedder``.
        machines: Workers and where they are; None is one worker on this machine.
        text_column: The column of the texts; None guesses.
        id_column: A column of distinct whole numbers or texts; None takes the row number, from 1.
        batch_size: Most texts in one pass of a model.
        normalize_embeddings: Scale vectors to length 1.
        shard_rows: Most rows in a part, which is what a kill can cost each worker; None chooses by the number of rows.
        show_progress_bar: None shows Ray's bars in a terminal.
        **options: All other arguments of ``InBedder``.

    Returns:
        The counts.

    Raises:
        MissingExtraError: Without Ray.
        InputError: When the input, its ids, the folder or the machines are not what they should be.
        ModelError: When the model is not found or cannot be loaded.
        InbedderError: When rows are missing at the end.
    """
    where = machines or Machines()
    if where.workers < 1 or batch_size < 1 or (shard_rows or 1) < 1:
        raise InputError("workers, batch_size and shard_rows must be at least 1.")
    if is_same_file(source, output):
        raise InputError(f"{shown(os.fspath(output))} is the input itself. Give a new folder for the output.")
    _need_ray()
    name, folder = os.fspath(model), Path(output).absolute()
    name = str(Path(name).absolute()) if name not in ADAPTERS and Path(name).is_dir() else name
    settings = _settings_of(name, options)
    encode: dict[str, Any] = {"batch_size": batch_size}
    encode["instruction"] = None if instruction is None else resolve_instruction(instruction)
    encode["normalize_embeddings"] = normalize_embeddings
    rows = survey(os.fspath(source), text_column, id_column)
    about = {
        "inbedder": __version__,
        "input": rows.digest,
        "text_column": [file.text_column for file in rows.files],
        "id_column": id_column,
        "instruction": encode["instruction"],
        "normalize_embeddings": normalize_embeddings,
        **settings,
    }
    size = shard_rows or max(batch_size, min(SHARD_ROWS, -(-rows.rows // (8 * where.workers))))
    with open_job(folder, about):
        done = deduplicate_parts(folder)
        computed = 0
        if len(done) < rows.rows:
            bars = sys.stderr.isatty() if show_progress_bar is None else show_progress_bar
            computed = _compute(rows, folder, done, {"model": name, **options}, encode, where, size, bars)
        return _verified(rows, folder, computed)


def _settings_of(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """What is known of the vectors before a model is loaded; refuses a model that is not there before any work."""
    from inbedder.backbones.revision import files_revision

    requested = Options.parse(model=name, **options)
    values = requested.deciding()
    plain = {key: asdict(value) if is_dataclass(value) else value for key, value in values.items()}  # type: ignore[arg-type]
    return {**plain, "files": files_revision(name, requested.model.revision)}


def _compute(
    source: Source,
    folder: Path,
    done: Keys,
    model: dict[str, Any],
    encode: dict[str, Any],
    where: Machines,
    shard_rows: int,
    bars: bool,
) -> int:
    """Run the pipeline over the rows that are not done; how many vectors it wrote."""
    if model.get("cache") is not None:
        model["cache"] = str(Path(model["cache"]).absolute())
    with _ray_session(where) as (cpus, all_gpus):
        from inbedder.distributed.pipeline import Plan, run_pipeline

        clear_failures(folder)
        threads = where.threads or _asked_threads() or max(1, cpus // where.workers)
        gpus = _gpus(where, model.get("device"), all_gpus)
        if gpus and str(model.get("device")).startswith("cuda"):
            model["device"] = "cuda"  # a worker sees its own GPUs alone
        sink = run_pipeline(Plan(source, folder, model, encode, where.workers, threads, gpus, shard_rows), done, bars)
    if sink.cut:
        warnings.warn(
            TextCutWarning(f"{sink.cut} texts were cut to fit max_length; raise it, or split long texts.", sink.cut),
            stacklevel=4,
        )
    return sink.computed


def _verified(source: Source, folder: Path, computed: int) -> JobResult:
    """Read the parts again: each id once, no row lost."""
    done = deduplicate_parts(folder)
    failed = gather_failures(folder, done)
    missing = source.rows - len(done) - failed
    if missing:
        raise InbedderError(f"{missing} of {source.rows} rows are missing in {folder}. Run the same command again to go on.")
    columns = tuple(file.text_column for file in source.files)
    return JobResult(folder, source.rows, len(done), computed, failed, columns)


def _need_ray() -> None:
    try:
        import ray.data  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("Ray Data", "ray") from error


@contextmanager
def _ray_session(where: Machines) -> Iterator[tuple[int, float]]:
    """CPUs for models and GPUs of a Ray that is up: the caller's own, a cluster's, or one that is started here and ends here."""
    import ray

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ours = not ray.is_initialized()
    if ours:
        _start_ray(where, cores)
    try:
        there = ray.cluster_resources()
        if there.get("CPU", 0) < where.workers + SPARE_CPUS:
            raise InputError(
                f"Ray has {there.get('CPU', 0):.0f} CPUs; {where.workers} workers need one each, and reading and writing "
                f"{SPARE_CPUS}. Ask for fewer workers, or add machines."
            )
        yield (int(there["CPU"]) if where.address else cores), there.get("GPU", 0.0)
    finally:
        if ours:
            ray.shutdown()


def _start_ray(where: Machines, cores: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its warnings would reach the terminal
    import ray
    import ray.data  # which sets up its log

    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    here = {"num_cpus": max(cores, where.workers) + SPARE_CPUS, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    try:
        if where.address:
            ray.init(where.address, **quiet)
        else:
            ray.init("local", **here, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        failure = f"No Ray cluster answers at {where.address}" if where.address else "Ray did not start"
        raise InputError(f"{failure} ({reason[0]}). Check --address, or look at it with: ray status") from error
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler) and type(handler).__module__.startswith("ray."):
            handler.setLevel(logging.CRITICAL)  # Ray's own to the terminal: what went wrong is raised


def _asked_threads() -> int | None:
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) if setting.isdigit() and int(setting) > 0 else None


def _gpus(where: Machines, device: str | None, there: float) -> float:
    """GPUs of each worker."""
    wanted = there > 0 and (device is None or device.startswith("cuda"))
    gpus = where.gpus if where.gpus is not None else float(wanted)
    if gpus * where.workers > there:
        raise InputError(
            f"{where.workers} workers need {gpus * where.workers:g} GPUs; Ray has {there:g}. "
            "Ask for fewer workers, or for device cpu."
        )
    return gpus


def summary_of(result: JobResult) -> str:
    """The counts of a run in a line."""
    failed = f"; {result.failed} rows failed, see {result.folder / FAILED}" if result.failed else ""
    return f"{result.folder}: {result.embedded} of {result.rows} rows embedded, {result.computed} of them now{failed}."
