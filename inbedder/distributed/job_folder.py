"""The folder of a large job: its description, its parts and its failures. Nothing here imports Ray.

    job/part-000000000001-9f2c61d0a4be.parquet   id, text, embedding; the name holds the first row's number
    job/_job.json                                everything that decides the vectors; another job is rejected
    job/_spec.json                               the ``VectorSpec`` of the vectors, written by the first worker
    job/_failed.jsonl                            rows without a vector: row number, id, reason

The parts are the only record of what is done (``job_parts``). After a kill at any moment the next run reads them and computes the
missing rows. The names of the other files begin with an underscore, so that ``pandas.read_parquet("job")`` reads only the parts.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from inbedder.distributed.job_parts import Keys, is_done, to_key
from inbedder.errors import InputError, format_value
from inbedder.io.files import atomic_write, hash_file, is_pipe
from inbedder.io.formats import BadRow, get_file_type
from inbedder.io.locks import LOCK_FILE, lock_folder
from inbedder.io.tables import READABLE_TYPES, find_columns, stream_rows
from inbedder.io.temporaries import is_temporary, remove_leftovers
from inbedder.prompting.tokenization import clean_text
from inbedder.runtime.user_paths import expand_path
from inbedder.vector_spec import VectorSpec

JOB_FILE, SPEC_FILE, FAILED_FILE, FAILED_FOLDER = "_job.json", "_spec.json", "_failed.jsonl", "_failed"
FAILURES_PATTERN = "part-*.jsonl"


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
        InputError: If it cannot be read, or an id is missing, neither a whole number nor a text, or not unique.
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
    if source == "-" or is_pipe(source):
        raise InputError("A job that can resume needs a file or a folder of files, not standard input or a pipe.")
    path = expand_path(source).absolute()
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


@contextmanager
def open_job(folder: Path, description: Mapping[str, Any]) -> Iterator[None]:
    """Start or resume a job in its folder, new or empty at first, and lock it against a second run; a killed run releases it."""
    description = json.loads(json.dumps(description))
    _reject_another_job(folder, description)
    refusal = f"Another run is writing to {format_value(str(folder))}. Wait for it, or choose another -o."
    with lock_folder(folder, refusal):
        remove_leftovers(folder)
        if not (folder / JOB_FILE).is_file():
            with atomic_write(folder / JOB_FILE) as temporary:
                temporary.write_text(json.dumps(description, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        yield


def check_spec(folder: Path, spec: VectorSpec) -> None:
    """Store the spec of a job's vectors, or reject a model whose vectors differ from the stored ones."""
    path = folder / SPEC_FILE
    if not path.is_file():
        with atomic_write(path) as temporary:  # workers that start together write the same content
            temporary.write_text(spec.to_json() + "\n", encoding="utf-8")
    try:
        stored = VectorSpec.from_json(path.read_text(encoding="utf-8"))
    except (InputError, OSError, ValueError) as error:
        raise _make_damage_error(path) from error
    stored.check(spec, "The vectors in this folder were made", "Choose another -o.")


def _reject_another_job(folder: Path, description: Mapping[str, Any]) -> None:
    path = folder / JOB_FILE
    if not path.is_file():
        if folder.is_dir() and any(file.name != LOCK_FILE and not is_temporary(file.name) for file in folder.iterdir()):
            raise InputError(f"{format_value(str(folder))} is not empty and holds no job. Choose a new or empty folder for -o.")
        return
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, MemoryError):
        stored = None
    if not isinstance(stored, dict):
        raise _make_damage_error(path)
    names = [name for name in {**stored, **description} if stored.get(name) != description.get(name) and name != "inbedder"]
    if names:
        labels = {name: name if name in description else format_value(name) for name in names}
        differences = "; ".join(
            f"its {label} is {format_value(stored.get(name))}, not {format_value(description.get(name))}"
            for name, label in labels.items()
        )
        advice = "Choose another -o, or remove the folder."
        raise InputError(f"{format_value(str(folder))} belongs to another job: {differences}. {advice}")


def _make_damage_error(path: Path) -> InputError:
    return InputError(f"{format_value(str(path))} is damaged. Choose another -o, or remove the folder.")


def clear_failures(folder: Path) -> None:
    """Remove the failures of earlier runs, so that each row is tried again."""
    _remove_failures(folder)
    (folder / FAILED_FOLDER).mkdir(exist_ok=True)


def _remove_failures(folder: Path) -> None:
    """Remove the failures that workers wrote, and their folder if it is then empty."""
    failures = folder / FAILED_FOLDER
    remove_leftovers(failures)
    for path in failures.glob(FAILURES_PATTERN):
        path.unlink()
    with suppress(OSError):  # it does not exist, or holds foreign files
        failures.rmdir()


def gather_failures(folder: Path, done_keys: Keys) -> int:
    """Gather the rows that failed, and have no vector after all, in one file, and count them; without any there is no file."""
    row_numbers: set[int] = set()
    with atomic_write(folder / FAILED_FILE) as temporary, temporary.open("w", encoding="utf-8") as file:
        for path in sorted((folder / FAILED_FOLDER).glob(FAILURES_PATTERN)):
            for row_number, row_id, line in _read_failures(path):
                has_vector = row_id is not None and is_done(np.array([to_key(row_id)]), done_keys)[0]
                if row_number not in row_numbers and not has_vector:
                    row_numbers.add(row_number)
                    file.write(line)
    _remove_failures(folder)
    if not row_numbers:
        (folder / FAILED_FILE).unlink()
    return len(row_numbers)


def _read_failures(path: Path) -> Iterator[tuple[int, int | str | None, str]]:
    """Read row number, id and line of each failure in a file that a worker wrote."""
    try:
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            failure = json.loads(line)
            if not (isinstance(failure["row"], int) and isinstance(failure["id"], int | str | None)):
                raise TypeError(line)
            yield failure["row"], failure["id"], line
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"{format_value(str(path))} is damaged. Remove it, and rerun the same command.") from error
