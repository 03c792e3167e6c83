"""The size limit of a cache, and eviction of the least recently used entries."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass

from inbedder.errors import InputError

FREED_SHARE = 0.1
"""Share of the limit that eviction frees, so that it runs rarely."""
MIN_LIMIT_BYTES = 10**6
"""The smallest limit."""
UNLIMITED = "unlimited"


def parse_size(size: str | int) -> int | None:
    """Parse a size in bytes.

    Args:
        size: A number of bytes, or a number followed by K, M, G or T (powers of 1000) or Ki, Mi, Gi or Ti (powers of 1024), such
            as "5G"; or "unlimited".

    Returns:
        The size in bytes, or None for "unlimited".

    Raises:
        InputError: If the size is not valid, or below 1 MB.
    """
    if size == UNLIMITED:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(?:([KMGT])(i?))?B?", str(size).strip(), re.IGNORECASE)
    if match is None or isinstance(size, bool):
        raise InputError(f"{size!r} is not a valid cache size. Pass one such as 500M or 5G, or {UNLIMITED}.")
    number, letter, binary = match.groups()
    num_bytes = int(float(number) * (1024 if binary else 1000) ** (" KMGT".index(letter.upper()) if letter else 0))
    if num_bytes < MIN_LIMIT_BYTES:
        raise InputError(f"{size!r} is too small for a cache. Pass 1M or more.")
    return num_bytes


@dataclass(frozen=True)
class Usage:
    """The size of a cache."""

    size: int
    """Size of the file in bytes."""
    limit: int | None
    """Maximum size in bytes; None if it is unlimited."""
    oldest_use: float | None
    """Last use of the entry that would be evicted first, in seconds since 1970; None without entries."""


def _measure_pages(connection: sqlite3.Connection, counter: str) -> int:
    """Return the bytes of a file's pages ("page_count") or of its unused pages ("freelist_count")."""
    count, page_size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in (counter, "page_size"))
    return int(count * page_size)


def read_limit(connection: sqlite3.Connection) -> int | None:
    """Read the maximum size of a file in bytes; None if it is unlimited."""
    row = connection.execute("SELECT value FROM settings WHERE name = 'limit'").fetchone()
    return row[0] if row and isinstance(row[0], int) and row[0] >= MIN_LIMIT_BYTES else None


def store_limit(connection: sqlite3.Connection, limit: int | None) -> None:
    """Store the maximum size of a file in bytes; None for unlimited."""
    if read_limit(connection) != limit:
        connection.execute("INSERT OR REPLACE INTO settings VALUES ('limit', ?)", (limit or 0,))


def measure_usage(connection: sqlite3.Connection) -> Usage:
    """Measure a file."""
    oldest = connection.execute("SELECT min(used) FROM uses WHERE used BETWEEN 1 AND ?", (int(time.time()),)).fetchone()
    return Usage(_measure_pages(connection, "page_count"), read_limit(connection), oldest[0])


def make_room(connection: sqlite3.Connection) -> int:
    """Evict the least recently used entries over a limit, in a transaction; return their number. Call ``shrink`` afterwards."""
    limit, num_evicted = read_limit(connection), 0
    if limit is None or _measure_used_bytes(connection) <= limit:
        return 0
    target_size = limit * (1 - FREED_SHARE)
    while (size := _measure_used_bytes(connection)) > target_size:
        num_entries = connection.execute("SELECT count(*) FROM uses").fetchone()[0]
        batch_size = (max(1, int(num_entries * (size - target_size) / size)),)
        oldest = connection.execute("SELECT id FROM uses ORDER BY used, id LIMIT ?", batch_size).fetchall()
        if not oldest:
            break
        connection.executemany("DELETE FROM entries WHERE id = ?", oldest)
        connection.executemany("DELETE FROM uses WHERE id = ?", oldest)
        num_evicted += len(oldest)
    return num_evicted


def shrink(connection: sqlite3.Connection) -> None:
    """Return the space of evicted entries to the file system."""
    with suppress(sqlite3.Error):  # another process is writing; the next call frees the space
        connection.executescript("PRAGMA incremental_vacuum")  # execute would free only one page
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _measure_used_bytes(connection: sqlite3.Connection) -> int:
    return _measure_pages(connection, "page_count") - _measure_pages(connection, "freelist_count")
