"""Large jobs: embed a table into a folder of parquet parts with Ray Data, on one machine or many.

A job survives crashes. A worker that dies is replaced, and another worker takes its rows; a killed job, run again, computes only
the rows that have no vector yet; a row that cannot be embedded goes to a side file with the reason. At the end the parts are read
again: each id must be there exactly once, and vectors and failures together must be the rows of the input, or the job raises an
error. Parts are keyed by id, not in order: sort by id where the order matters. ``job_folder`` describes the files.
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
    FAILED_FILE,
    Source,
    clear_failures,
    gather_failures,
    open_job,
    scan_source,
)
from inbedder.distributed.job_parts import Keys, deduplicate_parts
from inbedder.errors import InbedderError, InputError, MissingExtraError, TextCutWarning, format_value
from inbedder.io.files import is_same_file
from inbedder.models.install import ADAPTERS
from inbedder.options import Options
from inbedder.prompting.templates import resolve_instruction
from inbedder.runtime.user_paths import expand_name, expand_path

SPARE_CPUS = 2
"""CPUs for reading, splitting and writing, in addition to one per worker."""
OBJECT_STORE_BYTES = 1 << 30
"""Shared memory for rows between two steps, of a Ray that is started here."""
MAX_PART_ROWS = 4096
"""Maximum number of rows in a part."""


@dataclass(frozen=True)
class JobResult:
    """The counts of one run of a job.

    Example:
        >>> from pathlib import Path
        >>> from inbedder.distributed import JobResult
        >>> JobResult(Path("vectors"), rows=3, embedded=2, computed=2, failed=1, text_columns=("text",)).failed
        1
    """

    folder: Path
    """Folder of the job."""
    rows: int
    """Rows of the input."""
    embedded: int
    """Rows that have a vector."""
    computed: int
    """Rows that this run embedded."""
    failed: int
    """Rows without a vector; ``_failed.jsonl`` holds the reasons."""
    text_columns: tuple[str, ...]
    """Column of the texts of each file, as given or guessed."""


@dataclass(frozen=True)
class Machines:
    """The workers of a job and where they run.

    Example:
        >>> from inbedder.distributed import Machines
        >>> Machines(workers=4, threads=2).workers
        4
    """

    workers: int = 1
    """Number of actors that hold the model."""
    address: str | None = None
    """Address of a running Ray cluster; None starts Ray on this machine. A cluster reads input and output at the same paths."""
    threads: int | None = None
    """Threads per worker; None takes ``OMP_NUM_THREADS``, else cores divided by workers."""
    gpus: float | None = None
    """GPUs per worker; None takes one if there are GPUs and the device allows it."""


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
    """Embed a table into a folder of parquet parts with the columns id, text and embedding (a list of d floats).

    Args:
        source: A .csv, .tsv, .jsonl, .parquet or .txt file, or a folder of such files.
        output: A new folder, or the folder of the same job, which then resumes.
        instruction: A question, ``@name``, or None for vectors without a question.
        model: A bundled model's name, a hub id or a folder.
        machines: The workers; None runs one worker on this machine.
        text_column: The column of the texts; None guesses.
        id_column: A column of distinct whole numbers or texts; None takes the row number, from 1.
        batch_size: Maximum number of texts in one pass of a model.
        normalize_embeddings: Whether to scale vectors to length 1; False takes the model's default.
        shard_rows: Maximum number of rows in a part, and thus the work that a kill can cost each worker; None depends on the
            number of rows.
        show_progress_bar: Whether to show Ray's progress bars; None shows them in a terminal.
        **options: All other arguments of ``InBedder``, such as ``truncate_dim`` and ``precision``.

    Returns:
        The counts.

    Raises:
        MissingExtraError: If Ray is not installed.
        InputError: If the input, its ids, the folder or the machines cannot be used.
        ModelError: If the model is not found or cannot be loaded.
        InbedderError: If rows are missing at the end.

    Example:
        >>> from pathlib import Path
        >>> from inbedder.distributed import embed_job
        >>> _ = Path("reviews.txt").write_text("The box was crushed")
        >>> result = embed_job("reviews.txt", "vectors", "What is the complaint about?", show_progress_bar=False)
        >>> result.embedded, result.failed
        (1, 0)
    """
    machines = machines or Machines()
    if machines.workers < 1 or batch_size < 1 or (shard_rows or 1) < 1:
        raise InputError("workers, batch_size and shard_rows must be at least 1.")
    if is_same_file(source, output):
        raise InputError(f"{format_value(os.fspath(output))} is the input itself. Choose a new folder for the output.")
    _require_ray()
    name, folder = expand_name(model), expand_path(output).absolute()
    name = str(Path(name).absolute()) if name not in ADAPTERS and Path(name).is_dir() else name
    model_description = _describe_options(name, options)
    encode: dict[str, Any] = {"batch_size": batch_size, "normalize_embeddings": normalize_embeddings}
    encode["instruction"] = None if instruction is None else resolve_instruction(instruction)
    scanned = scan_source(os.fspath(source), text_column, id_column)
    description = {
        "inbedder": __version__,
        "input": scanned.digest,
        "text_column": [file.text_column for file in scanned.files],
        "id_column": id_column,
        "instruction": encode["instruction"],
        **model_description,
        "normalize_embeddings": normalize_embeddings or model_description["normalize_embeddings"],
    }
    part_rows = shard_rows or max(batch_size, min(MAX_PART_ROWS, -(-scanned.rows // (8 * machines.workers))))
    with open_job(folder, description):
        done_keys = deduplicate_parts(folder)
        computed = 0
        if len(done_keys) < scanned.rows:
            bars = sys.stderr.isatty() if show_progress_bar is None else show_progress_bar
            computed = _compute(scanned, folder, done_keys, {"model": name, **options}, encode, machines, part_rows, bars)
        return _verify_parts(scanned, folder, computed)


def _describe_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Describe the options and files that decide the vectors, without loading the model; reject a model that does not exist."""
    from inbedder.backbones.revision import get_files_revision

    requested = Options.parse(model=name, **options)
    values = requested.get_deciding_options()
    plain = {key: asdict(value) if is_dataclass(value) else value for key, value in values.items()}  # type: ignore[arg-type]
    return {**plain, "files": get_files_revision(name, requested.model.revision)}


def _compute(
    source: Source,
    folder: Path,
    done_keys: Keys,
    model: dict[str, Any],
    encode: dict[str, Any],
    machines: Machines,
    part_rows: int,
    bars: bool,
) -> int:
    """Run the pipeline over the rows that are not done; return the number of vectors that it wrote."""
    if model.get("cache") is not None:
        model["cache"] = str(expand_path(model["cache"]).absolute())
    with connect_ray(machines) as (cpus, all_gpus):
        from inbedder.distributed.pipeline import Plan, run_pipeline

        clear_failures(folder)
        threads = machines.threads or _read_omp_threads() or max(1, cpus // machines.workers)
        gpus = _count_gpus(machines, model.get("device"), all_gpus)
        if gpus and str(model.get("device")).startswith("cuda"):
            model["device"] = "cuda"  # a worker sees only its own GPUs
        sink = run_pipeline(Plan(source, folder, model, encode, machines.workers, threads, gpus, part_rows), done_keys, bars)
    if sink.cut_texts:
        message = f"{sink.cut_texts} texts were cut to fit max_length; raise it, or split long texts."
        warnings.warn(TextCutWarning(message, sink.cut_texts), stacklevel=4)
    return sink.computed


def _verify_parts(source: Source, folder: Path, computed: int) -> JobResult:
    """Read the parts again and check that each id occurs once and no row is missing."""
    done_keys = deduplicate_parts(folder)
    failed = gather_failures(folder, done_keys)
    missing = source.rows - len(done_keys) - failed
    if missing:
        raise InbedderError(f"{missing} of {source.rows} rows are missing in {folder}. Rerun the same command; it resumes.")
    columns = tuple(file.text_column for file in source.files)
    return JobResult(folder, source.rows, len(done_keys), computed, failed, columns)


def _require_ray() -> None:
    try:
        import ray.data  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("Ray Data", "ray") from error


@contextmanager
def connect_ray(machines: Machines) -> Iterator[tuple[int, float]]:
    """Connect to the caller's Ray or to a cluster, or start Ray here and stop it at the end; yield CPUs for models, and GPUs."""
    import ray

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    needs_start = not ray.is_initialized()
    if needs_start:
        _start_ray(machines, cores)
    try:
        resources = ray.cluster_resources()
        if resources.get("CPU", 0) < machines.workers + SPARE_CPUS:
            raise InputError(
                f"Ray has {resources.get('CPU', 0):.0f} CPUs; {machines.workers} workers need one each, and reading and writing "
                f"need {SPARE_CPUS}. Use fewer workers, or add machines."
            )
        yield (int(resources["CPU"]) if machines.address else cores), resources.get("GPU", 0.0)
    finally:
        if needs_start:
            ray.shutdown()


def _start_ray(machines: Machines, cores: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its warnings would reach the terminal
    import ray
    import ray.data  # sets up its log

    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    cpus = max(cores, machines.workers) + SPARE_CPUS
    local_options = {"num_cpus": cpus, "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
    try:
        if machines.address:
            ray.init(machines.address, **quiet)
        else:
            ray.init("local", **local_options, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        failure = f"No Ray cluster answers at {machines.address}" if machines.address else "Ray did not start"
        raise InputError(f"{failure} ({reason[0]}). Check --address, or inspect the cluster with: ray status") from error
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler) and type(handler).__module__.startswith("ray."):
            handler.setLevel(logging.CRITICAL)  # errors are raised; Ray's own handler would print them as well


def _read_omp_threads() -> int | None:
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) if setting.isdigit() and int(setting) > 0 else None


def _count_gpus(machines: Machines, device: str | None, available: float) -> float:
    """Count the GPUs of each worker."""
    uses_gpu = available > 0 and (device is None or device.startswith("cuda"))
    gpus = machines.gpus if machines.gpus is not None else float(uses_gpu)
    if gpus * machines.workers > available:
        raise InputError(
            f"{machines.workers} workers need {gpus * machines.workers:g} GPUs; Ray has {available:g}. "
            "Use fewer workers, or device cpu."
        )
    return gpus


def summarize_job(result: JobResult) -> str:
    """Summarize the counts of a run in one line."""
    failed = f"; {result.failed} rows failed, see {result.folder / FAILED_FILE}" if result.failed else ""
    return f"{result.folder}: {result.embedded} of {result.rows} rows embedded, {result.computed} of them now{failed}."
