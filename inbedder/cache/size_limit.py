"""How much room a cache may take, and what goes when it is full: the entries that were used least recently."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass

from inbedder.errors import InputError

FREED_SHARE = 0.1
"""Share of the limit that is made free when it is reached, so that this is rare."""
MIN_LIMIT_BYTES = 10**6
"""Bytes of the smallest limit."""
UNLIMITED = "unlimited"


def parse_size(size: str | int) -> int | None:
    """Bytes of a size as people write it.

    Args:
        size: A number of bytes, or one with K, M, G or T (powers of 1000) or Ki, Mi, Gi or Ti (powers of 1024) behind it, such as
            "5G"; or "unlimited".

    Returns:
        Bytes, or None for "unlimited".

    Raises:
        InputError: When it is no size, or below 1 MB.
    """
    if size == UNLIMITED:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(?:([KMGT])(i?))?B?", str(size).strip(), re.IGNORECASE)
    if found is None or isinstance(size, bool):
        raise InputError(f"{size!r} is no size of a cache. Give one such as 500M or 5G, or {UNLIMITED}.")
    number, letter, binary = found.groups()
    count = int(float(number) * (1024 if binary else 1000) ** (" KMGT".index(letter.upper()) if letter else 0))
    if count < MIN_LIMIT_BYTES:
        raise InputError(f"{size!r} is too small for a cache. Give 1M or more.")
    return count


@dataclass(frozen=True)
class Usage:
    """How much room a cache takes."""

    size: int
    """Bytes of the file."""
    limit: int | None
    """Most bytes that it may have; None for any number."""
    oldest_use: float | None
    """When the entry was used that would go first, in seconds since 1970; None where there is no entry."""


def _measure_pages(connection: sqlite3.Connection, which: str) -> int:
    """Bytes of the pages that a file has (page_count), or has no use for (freelist_count)."""
    counts = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in (which, "page_size")]
    return int(counts[0] * counts[1])


def read_limit(connection: sqlite3.Connection) -> int | None:
    """Most bytes that a file may have; None for any number."""
    row = connection.execute("SELECT value FROM settings WHERE name = 'limit'").fetchone()
    return row[0] if row and isinstance(row[0], int) and row[0] >= MIN_LIMIT_BYTES else None


def store_limit(connection: sqlite3.Connection, limit: int | None) -> None:
    """Write down the most bytes that a file may have; None for any number."""
    if read_limit(connection) != limit:
        connection.execute("INSERT OR REPLACE INTO settings VALUES ('limit', ?)", (limit or 0,))


def measure_usage(connection: sqlite3.Connection) -> Usage:
    """How much room a file takes."""
    oldest = connection.execute("SELECT min(used) FROM uses WHERE used BETWEEN 1 AND ?", (int(time.time()),)).fetchone()
    return Usage(_measure_pages(connection, "page_count"), read_limit(connection), oldest[0])


def make_room(connection: sqlite3.Connection) -> int:
    """Remove the entries that were used least recently while a file is over its limit.

    Args:
        connection: To the file, in a transaction.

    Returns:
        How many were removed; the file shrinks when ``shrink`` is called after the transaction.
    """
    limit, removed = read_limit(connection), 0
    if limit is None or _measure_used_bytes(connection) <= limit:
        return 0
    goal = limit * (1 - FREED_SHARE)
    while (size := _measure_used_bytes(connection)) > goal:
        count = connection.execute("SELECT count(*) FROM uses").fetchone()[0]
        most = (max(1, int(count * (size - goal) / size)),)
        oldest = connection.execute("SELECT id FROM uses ORDER BY used, id LIMIT ?", most).fetchall()
        if not oldest:
            break
        connection.executemany("DELETE FROM entries WHERE id = ?", oldest)
        connection.executemany("DELETE FROM uses WHERE id = ?", oldest)
        removed += len(oldest)
    return removed


def shrink(connection: sqlite3.Connection) -> None:
    """Give the room of removed entries back to the disk."""
    with suppress(sqlite3.Error):  # others are writing: the next time will do
        connection.executescript("PRAGMA incremental_vacuum")  # execute would free one page alone
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _measure_used_bytes(connection: sqlite3.Connection) -> int:
    return _measure_pages(connection, "page_count") - _measure_pages(connection, "freelist_count")
