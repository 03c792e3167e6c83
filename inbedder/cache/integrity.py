"""Checking, mending and removing a cache's file, however damaged it is."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from inbedder.cache.database import READ_ERRORS, is_intact, is_new, make_tables, parse_description, suggest_repair
from inbedder.errors import InputError
from inbedder.io.files import atomic_write

LOG_SUFFIXES = ("-wal", "-shm", "-journal")
"""What SQLite may keep beside a file, by the end of its name."""
MAX_ROW_ID = 2**63 - 1


def check(connection: sqlite3.Connection, path: Path) -> list[str]:
    """Check a file, named by ``path`` in the messages; return one line per damage."""
    wrong: list[str] = []
    try:
        wrong += [str(line) for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
        spaces = connection.execute("SELECT id, key, about FROM spaces").fetchall()
        wrong += [f"space {number} is damaged" for number, key, about in spaces if parse_description(key, about) is None]
        keys = {number: key for number, key, _ in spaces}
        for space, key, data, found in connection.execute("SELECT space, key, data, sum FROM entries"):
            if not is_intact(keys.get(space), key, data, found):
                name = key.hex() if isinstance(key, bytes) else repr(key)
                wrong.append(f"entry {name[:40]} of space {repr(space)[:40]} is damaged")
    except READ_ERRORS as error:
        wrong.append(f"{path} is damaged: {error}. {suggest_repair(path)}")
    return wrong


def rebuild(path: Path) -> int:
    """Copy the whole entries of a file into a fresh one, which takes its place at the end.

    Args:
        path: A file that no other process uses.

    Returns:
        How many entries were copied.

    Raises:
        InputError: When another process uses the file, or it cannot be replaced.
    """
    with _lock_exclusively(path) as damaged:
        if damaged is None:
            raise InputError(f"{path} cannot be read. Remove it with: inbedder cache clear {path.parent}")
        try:
            is_new(damaged, path)  # which refuses a file that is no cache
        except READ_ERRORS as error:
            raise InputError(f"{path} cannot be read ({error}). Remove it with: inbedder cache clear {path.parent}") from error
        with atomic_write(path) as fresh_path:
            try:
                with closing(sqlite3.connect(fresh_path, isolation_level=None)) as fresh:
                    make_tables(fresh)
                    fresh.execute("PRAGMA journal_mode=DELETE")  # else a log would stay beside the file when it is renamed
                    fresh.execute("BEGIN")
                    copied = _copy_intact_entries(damaged, fresh)
                    fresh.execute("COMMIT")
            except READ_ERRORS as error:
                raise InputError(f"{path} was not mended ({error}) and is as it was. Make room on its disk.") from error
            _remove_logs(path)  # of the damaged file: SQLite would play them into the fresh one
    return copied


def _copy_intact_entries(damaged: sqlite3.Connection, fresh: sqlite3.Connection) -> int:
    keys: dict[int, bytes] = {}
    for number, key, about in _read_rows(damaged, "spaces", "key, about"):
        if parse_description(key, about) is not None:
            keys[number] = key
            fresh.execute("INSERT OR IGNORE INTO spaces VALUES (?, ?, ?)", (number, key, about))
    for number, space, key, data, found in _read_rows(damaged, "entries", "space, key, data, sum"):
        if is_intact(keys.get(space), key, data, found):
            fresh.execute("INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?, ?)", (number, space, key, data, found))
    now = int(time.time())
    for number, used in _read_rows(damaged, "uses", "used"):
        if isinstance(used, int) and 0 < used <= now:
            fresh.execute("INSERT OR IGNORE INTO uses SELECT id, ? FROM entries WHERE id = ?", (used, number))
    fresh.execute("INSERT OR IGNORE INTO uses SELECT id, ? FROM entries", (now,))
    with suppress(*READ_ERRORS):
        for limit in damaged.execute("SELECT value FROM settings WHERE name = 'limit' AND typeof(value) = 'integer'"):
            fresh.execute("INSERT OR IGNORE INTO settings VALUES ('limit', ?)", limit)
    return int(fresh.execute("SELECT count(*) FROM entries").fetchone()[0])


def _read_rows(connection: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table that can be read, in the order of their ids; behind a damaged page it goes on in growing steps."""
    start, step = 1, 1
    while start <= MAX_ROW_ID:
        try:
            for row in connection.execute(f"SELECT rowid, {columns} FROM {table} WHERE rowid >= ? ORDER BY rowid", (start,)):
                yield row
                start, step = max(start, row[0] + 1), 1
            return
        except READ_ERRORS:
            start, step = start + step, step * 2


def remove(path: Path) -> None:
    """Remove a file, readable or not, and what SQLite keeps beside it; its folder goes only when nothing else is in it.

    Args:
        path: The file.

    Raises:
        InputError: When another process or thread uses the file, or it cannot be removed.
    """
    try:
        with _lock_exclusively(path):
            path.unlink(missing_ok=True)
            _remove_logs(path)
    except OSError as error:
        raise InputError(f"{path} cannot be removed ({error.strerror}). Look at the rights of its folder.") from error
    with suppress(OSError):  # the folder holds other files
        path.parent.rmdir()


def _remove_logs(path: Path) -> None:
    for end in LOG_SUFFIXES:
        path.with_name(path.name + end).unlink(missing_ok=True)


@contextmanager
def _lock_exclusively(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Keep others out of a file; the connection to it is None when SQLite cannot open it, and so nobody uses it."""
    with closing(sqlite3.connect(path, timeout=1.0, isolation_level=None)) as connection:
        usable: sqlite3.Connection | None = connection
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=DELETE")  # which also writes the log into the file and removes it
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise InputError(f"{path} is in use. Wait for the run that uses it, or stop it, and try again.") from error
        except READ_ERRORS as error:
            if "not a database" in str(error):
                usable = None
        yield usable
