"""The parts of a large job: their names, their checks, and the ids that they hold. Nothing here imports Ray.

Each part is written under a temporary name and renamed when it is complete, so a row is done if and only if its id is in a part.
Pages have checksums, and a part counts only if all of its columns can be read.
"""

from __future__ import annotations

import logging
import re
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError, format_value
from inbedder.io.files import atomic_write

logger = logging.getLogger(__name__)

PART_COLUMNS = ["id", "text", "embedding"]
ID_TYPES = ("int64", "string", "large_string")
"""Arrow types of the ids."""
PART_PATTERN = "part-*.parquet"
PART_NAME = re.compile(r"part-\d{12,}-[0-9a-f]{12}\.parquet")
Keys = NDArray[np.int64]
"""64 bits of each id: whole numbers as they are, texts hashed."""


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
    """Find which of n keys are among m sorted ones, in n log m steps."""
    if not len(done_keys):
        return np.zeros(len(keys), dtype=bool)
    matches: NDArray[np.bool_] = done_keys[np.searchsorted(done_keys, keys).clip(max=len(done_keys) - 1)] == keys
    return matches


def name_part(row_numbers: NDArray[np.int64]) -> str:
    """Name a part, without its suffix, by the numbers of its rows."""
    return f"part-{row_numbers[0]:012d}-{sha256(row_numbers.tobytes()).hexdigest()[:12]}"


def write_part(path: Path, table: Any) -> None:
    """Write a pyarrow table with ``PART_COLUMNS`` as a part, completely or not at all."""
    from pyarrow import parquet

    with atomic_write(path) as temporary:
        parquet.write_table(table, temporary, write_page_checksum=True)


def deduplicate_parts(folder: Path) -> Keys:
    """Check the parts, remove repeated ids from them, and read the ids that they hold.

    A worker that briefly outlives its killed driver can write rows that the next run computes too; the second copy is removed
    here. Damaged parts are removed with a warning: their rows are computed again.

    Args:
        folder: The job's folder.

    Returns:
        The keys of all ids in the parts, sorted.

    Raises:
        InputError: If the folder holds parts of something else, or a part cannot be read.
    """
    paths: list[Path] = []
    part_keys: list[Keys] = []
    for path in sorted(folder.glob(PART_PATTERN)):
        if not PART_NAME.fullmatch(path.name):
            raise InputError(f"{format_value(str(path))} is not a part of this job. Move it elsewhere, or choose another -o.")
        if (part := read_part(path)) is None:
            logger.warning("%s is damaged and was removed; its rows are computed again.", path)
            path.unlink()
        else:
            part_keys.append(to_keys(part["id"].combine_chunks()))
            paths.append(path)
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


def read_part(path: Path) -> Any:
    """Read a part as a pyarrow table and check its pages; None if it is damaged. InputError: the system cannot read it."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with path.open("rb") as file:
            table = ParquetFile(file, page_checksum_verification=True).read()
        table.validate(full=True)
    except (ArrowException, OSError, ValueError) as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:  # the system's, not Arrow's
            reason = getattr(error, "strerror", None) or "it needs more memory than there is"
            advice = "Make it readable or remove it, and rerun the same command."
            raise InputError(f"Cannot read {format_value(str(path))}: {reason}. {advice}") from error
        return None
    has_columns = table.column_names == PART_COLUMNS and str(table.schema.field("id").type) in ID_TYPES
    return table if has_columns and not any(column.null_count for column in table.columns) else None


def _keep_rows(path: Path, mask: NDArray[np.bool_]) -> None:
    table = read_part(path).filter(mask)
    if len(table):
        write_part(path, table)
    else:
        path.unlink()
