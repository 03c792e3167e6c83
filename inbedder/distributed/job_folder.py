"""The folder of a large job: its description, its parts and its failures. Nothing here imports Ray.

    job/part-000000000001-9f2c61d0a4be.parquet   id, text, embedding; the name holds the first row's number
    job/_job.json                                everything that decides the vectors; another job is refused
    job/_spec.json                               the ``VectorSpec`` of the vectors, written by the first worker
    job/_failed.jsonl                            rows without a vector: row number, id, reason

The parts are the only record of what is done: each is written under a temporary name and renamed when it is complete, so a row is
done if and only if its id is in a part. After a kill at any moment the next run reads the ids of the parts and computes the
others. The names of the other files begin with an underscore, so that ``pandas.read_parquet("job")`` reads only the parts.
"""

from __future__ import annotations

import json
import logging
import shutil
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError, format_value
from inbedder.io.files import atomic_write, hash_file
from inbedder.io.formats import BadRow, get_file_type
from inbedder.io.tables import READABLE_TYPES, find_columns, stream_rows
from inbedder.prompting.tokenization import clean_text
from inbedder.vector_spec import VectorSpec

logger = logging.getLogger(__name__)

JOB_FILE, SPEC_FILE, FAILED_FILE, FAILED_FOLDER, LOCK_FILE = "_job.json", "_spec.json", "_failed.jsonl", "_failed", "_lock"
PART_PATTERN = "part-*.parquet"
Keys = NDArray[np.int64]
"""64 bits of each id: whole numbers as they are, texts hashed."""


@dataclass(frozen=True)
class SourceFile:
    """One file of the input."""

    path: str
    """Absolute path."""
    first: int
    """Number of rows in the files before it."""
    text_column: str
    """Column of its texts."""


@dataclass(frozen=True)
class Source:
    """The input, scanned once before the work: its rows are counted, its ids checked."""

    files: tuple[SourceFile, ...]
    """The files, in the order of their names."""
    rows: int
    """Number of rows, including bad ones."""
    id_column: str | None
    """Column of the ids; None takes the row number, from 1 over all files."""
    text_ids: bool
    """Whether the ids are texts, else whole numbers."""
    digest: str
    """Hash of the contents of all files."""


def scan_source(source: str, text_column: str | None = None, id_column: str | None = None) -> Source:
    """Read the whole input once; memory grows by 16 bytes per row with an id column, and not at all without.

    Args:
        source: A file that ``stream_rows`` reads, or a folder of such files.
        text_column: The column of the texts; None guesses.
        id_column: The column of the ids; None takes row numbers.

    Returns:
        Its files, row count and digest.

    Raises:
        InputError: When it cannot be read, or an id is missing, neither a whole number nor a text, or not unique.
    """
    files: list[SourceFile] = []
    first, id_types = 0, set[type]()
    keys, numbers = array("q"), array("q")
    for path in _list_source_files(source):
        files.append(SourceFile(path, first, find_columns(path, text_column, id_column)[0]))
        last = 0
        for last, row in stream_rows(path, [id_column or files[-1].text_column]):
            if id_column is not None and not isinstance(row, BadRow):
                value = clean_id(row.get(id_column))
                id_types.add(_get_id_type(value, id_column, path, last))
                keys.append(to_key(value))
                numbers.append(first + last)
        first += last
    if len(id_types) > 1:
        message = f"Column {format_value(id_column)} of {format_value(source)} mixes numbers and texts. Make them one type."
        raise InputError(message)
    _check_distinct(np.frombuffer(keys, dtype=np.int64), numbers, id_column)
    digests = [hash_file(Path(file.path)) for file in files]
    digest = digests[0] if len(digests) == 1 else blake2b("".join(digests).encode(), digest_size=32).hexdigest()
    return Source(tuple(files), first, id_column, id_types == {str}, digest)


def _list_source_files(source: str) -> list[str]:
    if source == "-":
        raise InputError("A job that can resume needs a file or a folder of files, not standard input.")
    path = Path(source).absolute()
    if not path.is_dir():
        return [str(path)]
    paths = sorted(str(file) for file in path.iterdir() if get_file_type(file) in READABLE_TYPES and file.name[0] not in "._")
    if not paths:
        raise InputError(f"{format_value(source)} holds no table. Give a file or a folder with {' '.join(READABLE_TYPES)}.")
    return paths


def clean_id(value: Any) -> Any:
    """Clean an id as texts are cleaned before they are written."""
    return clean_text(value) if isinstance(value, str) else value


def _get_id_type(value: Any, column: str, path: str, number: int) -> type:
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return int
    if isinstance(value, str) and value:
        return str
    raise InputError(
        f"{format_value(path)}, row {number}: the id in column {format_value(column)} is {format_value(value)}, neither a text "
        "nor a whole number. Fill it in, or leave out --id-column to take row numbers."
    )


def _check_distinct(keys: Keys, numbers: Sequence[int], column: str | None) -> None:
    order = np.argsort(keys, kind="stable")
    duplicates = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    if len(duplicates):
        first, second = numbers[order[duplicates[0]]], numbers[order[duplicates[0] + 1]]
        raise InputError(
            f"Column {format_value(column)}: rows {first} and {second} have the same id ({len(duplicates)} ids repeat an earlier "
            "one). Give each row its own id, or leave out --id-column to take row numbers."
        )


def to_key(value: int | str) -> int:
    """Convert an id to 64 bits: a whole number stays as it is, a text is hashed."""
    if isinstance(value, int):
        return value
    return int.from_bytes(blake2b(value.encode(), digest_size=8).digest(), "little", signed=True)


def to_keys(ids: Any) -> Keys:
    """Convert a pyarrow column of ids to keys."""
    if str(ids.type) == "int64":
        return np.asarray(ids.to_numpy(), dtype=np.int64)
    return np.fromiter((to_key(row_id) for row_id in ids.to_pylist()), np.int64, len(ids))


def is_done(keys: Keys, done_keys: Keys) -> NDArray[np.bool_]:
    """Tell which of n keys are among m sorted ones, in n log m steps."""
    if not len(done_keys):
        return np.zeros(len(keys), dtype=bool)
    matches: NDArray[np.bool_] = done_keys[np.searchsorted(done_keys, keys).clip(max=len(done_keys) - 1)] == keys
    return matches


@contextmanager
def open_job(folder: Path, description: Mapping[str, Any]) -> Iterator[None]:
    """Start or resume a job in a folder, and lock the folder against a second run; a killed run releases its lock.

    Args:
        folder: New, empty, or the folder of the same job.
        description: Everything that decides the vectors.

    Yields:
        Nothing.

    Raises:
        InputError: When the folder belongs to another job, holds other files, cannot be created, or another run uses it.
    """
    description = json.loads(json.dumps(description))
    _refuse_another_job(folder, description)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot create the folder {folder}: {error.strerror}. Choose another -o.") from error
    with (folder / LOCK_FILE).open("a") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows: runs are not kept apart
            pass
        except OSError as error:
            raise InputError(f"Another run is writing to {folder}. Wait for it, or choose another -o.") from error
        if not (folder / JOB_FILE).is_file():
            with atomic_write(folder / JOB_FILE) as temporary:
                temporary.write_text(json.dumps(description, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        yield


def check_spec(folder: Path, spec: VectorSpec) -> None:
    """Store the spec of a job's vectors, or refuse a model whose vectors differ from the stored ones.

    Args:
        folder: The job's folder.
        spec: The spec of a worker's model.

    Raises:
        InputError: When the model or its options are not those of the job.
    """
    path = folder / SPEC_FILE
    if not path.is_file():
        with atomic_write(path) as temporary:  # workers that start together write the same content
            temporary.write_text(spec.to_json() + "\n", encoding="utf-8")
    stored = VectorSpec.from_json(path.read_text(encoding="utf-8"))
    stored.check(spec, "The vectors in this folder were made", "Choose another -o.")


def _refuse_another_job(folder: Path, description: Mapping[str, Any]) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Choose a new or empty folder for -o.")
    path = folder / JOB_FILE
    if not path.is_file():
        if folder.is_dir() and any(file.name != LOCK_FILE for file in folder.iterdir()):
            raise InputError(f"{folder} is not empty and holds no job. Choose a new or empty folder for -o.")
        return
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is damaged. Choose another -o, or remove {folder}.") from error
    names = [name for name in {**stored, **description} if stored.get(name) != description.get(name) and name != "inbedder"]
    if names:
        differences = "; ".join(f"its {name} is {stored.get(name)!r}, not {description.get(name)!r}" for name in names)
        raise InputError(f"{folder} belongs to another job: {differences}. Choose another -o, or remove the folder.")


def deduplicate_parts(folder: Path) -> Keys:
    """Remove repeated ids from the parts, and read the ids that they hold.

    A worker that briefly outlives its killed driver can write rows that the next run computes too; the second copy is removed
    here. Parts that cannot be read are removed with a warning: their rows are computed again.

    Args:
        folder: The job's folder.

    Returns:
        The keys of all ids in the parts, sorted.
    """
    from pyarrow import ArrowInvalid, parquet

    for partial_file in folder.glob(f".{PART_PATTERN}"):  # half-written when a run was killed
        partial_file.unlink(missing_ok=True)
    paths: list[Path] = []
    part_keys: list[Keys] = []
    for path in sorted(folder.glob(PART_PATTERN)):
        try:
            part_keys.append(to_keys(parquet.read_table(path, columns=["id"])["id"].combine_chunks()))
            paths.append(path)
        except ArrowInvalid:
            logger.warning("%s is damaged and was removed; its rows are computed again.", path)
            path.unlink()
    keys = np.concatenate(part_keys) if part_keys else np.empty(0, dtype=np.int64)
    distinct, first_indices = np.unique(keys, return_index=True)
    if len(distinct) < len(keys):
        is_first = np.zeros(len(keys), dtype=bool)
        is_first[first_indices] = True
        ends = np.cumsum([len(one_part) for one_part in part_keys])
        for path, mask in zip(paths, np.split(is_first, ends[:-1]), strict=True):
            if not mask.all():
                _keep_rows(path, mask)
    return distinct


def _keep_rows(path: Path, mask: NDArray[np.bool_]) -> None:
    from pyarrow import parquet

    table = parquet.read_table(path).filter(mask)
    if not len(table):
        path.unlink()
        return
    with atomic_write(path) as temporary:
        parquet.write_table(table, temporary)


def clear_failures(folder: Path) -> None:
    """Remove the failures of earlier runs, so that each row is tried again."""
    shutil.rmtree(folder / FAILED_FOLDER, ignore_errors=True)
    (folder / FAILED_FOLDER).mkdir()


def gather_failures(folder: Path, done_keys: Keys) -> int:
    """Gather the failed rows of a run in one file.

    Args:
        folder: The job's folder.
        done_keys: Sorted keys of the ids that have a vector after all.

    Returns:
        Number of rows that failed; without any there is no file.
    """
    row_numbers: set[int] = set()
    with atomic_write(folder / FAILED_FILE) as temporary, temporary.open("w", encoding="utf-8") as file:
        for part in sorted((folder / FAILED_FOLDER).glob("part-*.jsonl")):
            for line in part.open(encoding="utf-8"):
                failure = json.loads(line)
                has_vector = failure["id"] is not None and is_done(np.array([to_key(failure["id"])]), done_keys)[0]
                if failure["row"] not in row_numbers and not has_vector:
                    row_numbers.add(failure["row"])
                    file.write(line)
    shutil.rmtree(folder / FAILED_FOLDER, ignore_errors=True)
    if not row_numbers:
        (folder / FAILED_FILE).unlink()
    return len(row_numbers)
