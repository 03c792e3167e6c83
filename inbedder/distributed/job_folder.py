"""The folder of a large job: what it is about, what is done, what failed. No Ray here.

    job/part-000000000001-9f2c61d0a4be.parquet   id, text, embedding; the name holds the first row's number
    job/_job.json                                what decides the vectors; another job is refused
    job/_spec.json                               the ``VectorSpec`` of the vectors, written by the first worker
    job/_failed.jsonl                            rows that gave no vector: row number, id, reason

The parts are the only books of what is done: each is written under another name and renamed when it is whole, so a row is done
if and only if its id is in a part. After a kill at any moment the next run reads the ids of the parts and computes the others.
The names of the other files begin with an underscore, so that ``pandas.read_parquet("job")`` reads the parts alone.
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

from inbedder.errors import InputError, shown
from inbedder.io.files import atomic_write, sha256_of
from inbedder.io.formats import BadRow, kind_of
from inbedder.io.tables import READABLE, find_columns, stream_rows
from inbedder.prompting.tokenization import clean_text
from inbedder.vector_spec import VectorSpec

logger = logging.getLogger(__name__)

JOB, SPEC, FAILED, FAILED_PARTS, LOCK = "_job.json", "_spec.json", "_failed.jsonl", "_failed", "_lock"
PARTS = "part-*.parquet"
Keys = NDArray[np.int64]
"""Of each id 64 bits: whole numbers as they are, texts hashed."""


@dataclass(frozen=True)
class SourceFile:
    """One file of the input."""

    path: str
    """Where it is."""
    first: int
    """Rows of the files before it."""
    text_column: str
    """Where its texts are."""


@dataclass(frozen=True)
class Source:
    """The input, read through once before the work: its rows are counted, its ids checked."""

    files: tuple[SourceFile, ...]
    """In the order of their names."""
    rows: int
    """How many there are, bad ones too."""
    id_column: str | None
    """Where the ids are; None takes the row number, from 1 over all files."""
    text_ids: bool
    """Whether the ids are texts, else whole numbers."""
    digest: str
    """SHA-256 of all files."""


def survey(source: str, text_column: str | None = None, id_column: str | None = None) -> Source:
    """Read the input through: memory grows by 16 bytes per row where there is an id column, and not at all without.

    Args:
        source: A file that ``stream_rows`` reads, or a folder of such files.
        text_column: The column of the texts; None guesses.
        id_column: The column of the ids; None takes row numbers.

    Returns:
        What is known of it.

    Raises:
        InputError: When it cannot be read, or an id is missing, no whole number or text, or there twice.
    """
    files: list[SourceFile] = []
    first, kinds = 0, set[type]()
    keys, numbers = array("q"), array("q")
    for path in _source_files(source):
        files.append(SourceFile(path, first, find_columns(path, text_column, id_column)[0]))
        last = 0
        for last, row in stream_rows(path, [id_column or files[-1].text_column]):
            if id_column is not None and not isinstance(row, BadRow):
                value = clean_id(row.get(id_column))
                kinds.add(_kind_of_id(value, id_column, path, last))
                keys.append(id_key(value))
                numbers.append(first + last)
        first += last
    if len(kinds) > 1:
        raise InputError(f"Column {shown(id_column)} of {shown(source)} mixes numbers and texts. Make them one kind.")
    _check_distinct(np.frombuffer(keys, dtype=np.int64), numbers, id_column)
    digest = sha256_of(Path(files[0].path)) if len(files) == 1 else _digest([sha256_of(Path(file.path)) for file in files])
    return Source(tuple(files), first, id_column, kinds == {str}, digest)


def _source_files(source: str) -> list[str]:
    if source == "-":
        raise InputError("A job that can be taken up again needs a file or a folder of files, not standard input.")
    path = Path(source).absolute()
    if not path.is_dir():
        return [str(path)]
    found = sorted(str(file) for file in path.iterdir() if kind_of(file) in READABLE and file.name[0] not in "._")
    if not found:
        raise InputError(f"{shown(source)} holds no table. Give a file or a folder with {' '.join(READABLE)}.")
    return found


def clean_id(value: Any) -> Any:
    """An id as it will be written."""
    return clean_text(value) if isinstance(value, str) else value


def _kind_of_id(value: Any, column: str, path: str, number: int) -> type:
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return int
    if isinstance(value, str) and value:
        return str
    raise InputError(
        f"{shown(path)}, row {number}: the id in column {shown(column)} is {shown(value)}, neither a text nor a whole number. "
        "Fill it, or leave out --id-column to take row numbers."
    )


def _check_distinct(keys: Keys, numbers: Sequence[int], column: str | None) -> None:
    order = np.argsort(keys, kind="stable")
    twice = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    if len(twice):
        row, other = numbers[order[twice[0]]], numbers[order[twice[0] + 1]]
        raise InputError(
            f"Column {shown(column)}: rows {row} and {other} have the same id ({len(twice)} ids are not the first of their "
            "kind). Give each row its own, or leave out --id-column to take row numbers."
        )


def _digest(parts: Sequence[str]) -> str:
    return blake2b("".join(parts).encode(), digest_size=32).hexdigest()


def id_key(value: int | str) -> int:
    """64 bits of an id: a whole number as it is, a text hashed."""
    if isinstance(value, int):
        return value
    return int.from_bytes(blake2b(value.encode(), digest_size=8).digest(), "little", signed=True)


def keys_of(ids: Any) -> Keys:
    """The keys of a pyarrow column of ids."""
    if str(ids.type) == "int64":
        return np.asarray(ids.to_numpy(), dtype=np.int64)
    return np.fromiter((id_key(row_id) for row_id in ids.to_pylist()), np.int64, len(ids))


def is_done(keys: Keys, done: Keys) -> NDArray[np.bool_]:
    """Which of some keys are among others, sorted ones; n log m."""
    if not len(done):
        return np.zeros(len(keys), dtype=bool)
    found: NDArray[np.bool_] = done[np.searchsorted(done, keys).clip(max=len(done) - 1)] == keys
    return found


@contextmanager
def open_job(folder: Path, about: Mapping[str, Any]) -> Iterator[None]:
    """Begin a job in a folder, or go on with it; meanwhile a second run is kept out. A killed run's lock is gone with it.

    Args:
        folder: New, empty, or that of the same job.
        about: All that decides the vectors.

    Yields:
        Nothing.

    Raises:
        InputError: When the folder is another job's, holds something else, cannot be made, or another run is at work in it.
    """
    described = json.loads(json.dumps(about))
    _refuse_another_job(folder, described)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot make the folder {folder}: {error.strerror}. Choose another -o.") from error
    with (folder / LOCK).open("a") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # not on this system: nobody is kept out
            pass
        except OSError as error:
            raise InputError(f"Another run is at work in {folder}. Wait for it, or choose another -o.") from error
        if not (folder / JOB).is_file():
            with atomic_write(folder / JOB) as temporary:
                temporary.write_text(json.dumps(described, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        yield


def check_spec(folder: Path, spec: VectorSpec) -> None:
    """Store what decides the vectors of a job, or refuse a model that gives others than those that are there.

    Args:
        folder: The job's.
        spec: Of a worker's model.

    Raises:
        InputError: When the model is another one, or is read in another way.
    """
    path = folder / SPEC
    if not path.is_file():
        with atomic_write(path) as temporary:  # workers that start together write the same
            temporary.write_text(spec.to_json() + "\n", encoding="utf-8")
    stored = VectorSpec.from_json(path.read_text(encoding="utf-8"))
    stored.check(spec, "The vectors in this folder were made", "Choose another -o.")


def _refuse_another_job(folder: Path, described: Mapping[str, Any]) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Give a new or empty folder for -o.")
    path = folder / JOB
    if not path.is_file():
        if folder.is_dir() and any(file.name != LOCK for file in folder.iterdir()):
            raise InputError(f"{folder} is not empty and holds no job. Choose a new or empty folder for -o.")
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is damaged. Choose another -o, or remove {folder}.") from error
    other = [key for key in {**found, **described} if found.get(key) != described.get(key) and key != "inbedder"]
    if other:
        says = "; ".join(f"its {key} is {found.get(key)!r}, not {described.get(key)!r}" for key in other)
        raise InputError(f"{folder} belongs to another job: {says}. Choose another -o, or remove the folder to start anew.")


def deduplicate_parts(folder: Path) -> Keys:
    """Make the parts hold each id once, and read which are there.

    A worker that outlives its killed driver for a moment can write rows that the next run computes too; the second copy is
    taken out here. Parts that cannot be read are removed with a warning: their rows are computed again.

    Args:
        folder: The job's.

    Returns:
        The keys of all ids in the parts, sorted.
    """
    from pyarrow import ArrowInvalid, parquet

    for left in folder.glob(f".{PARTS}"):  # half-written when a run was killed
        left.unlink(missing_ok=True)
    paths: list[Path] = []
    each: list[Keys] = []
    for path in sorted(folder.glob(PARTS)):
        try:
            each.append(keys_of(parquet.read_table(path, columns=["id"])["id"].combine_chunks()))
            paths.append(path)
        except ArrowInvalid:
            logger.warning("%s is damaged and was removed; its rows are computed again.", path)
            path.unlink()
    keys = np.concatenate(each) if each else np.empty(0, dtype=np.int64)
    distinct, places = np.unique(keys, return_index=True)
    if len(distinct) < len(keys):
        first = np.zeros(len(keys), dtype=bool)
        first[places] = True
        ends = np.cumsum([len(part_keys) for part_keys in each])
        for path, keep in zip(paths, np.split(first, ends[:-1]), strict=True):
            if not keep.all():
                _keep_rows(path, keep)
    return distinct


def _keep_rows(path: Path, keep: NDArray[np.bool_]) -> None:
    from pyarrow import parquet

    table = parquet.read_table(path).filter(keep)
    if not len(table):
        path.unlink()
        return
    with atomic_write(path) as temporary:
        parquet.write_table(table, temporary)


def clear_failures(folder: Path) -> None:
    """Forget failed rows of earlier runs: each is tried again."""
    shutil.rmtree(folder / FAILED_PARTS, ignore_errors=True)
    (folder / FAILED_PARTS).mkdir()


def gather_failures(folder: Path, done: Keys) -> int:
    """Put the failed rows of a run into one file.

    Args:
        folder: The job's.
        done: Sorted keys of the ids that have a vector after all.

    Returns:
        How many rows failed; without any there is no file.
    """
    seen: set[int] = set()
    with atomic_write(folder / FAILED) as temporary, temporary.open("w", encoding="utf-8") as file:
        for part in sorted((folder / FAILED_PARTS).glob("part-*.jsonl")):
            for line in part.open(encoding="utf-8"):
                failure = json.loads(line)
                known = failure["id"] is not None and is_done(np.array([id_key(failure["id"])]), done)[0]
                if failure["row"] not in seen and not known:
                    seen.add(failure["row"])
                    file.write(line)
    shutil.rmtree(folder / FAILED_PARTS, ignore_errors=True)
    if not seen:
        (folder / FAILED).unlink()
    return len(seen)
