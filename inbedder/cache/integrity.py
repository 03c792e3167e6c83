"""Checking, repairing and removing a cache's file, however damaged it is."""

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
from inbedder.io.temporaries import remove_leftovers

LOG_SUFFIXES = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps next to a database."""
MAX_ROW_ID = 2**63 - 1


def check(connection: sqlite3.Connection, path: Path) -> list[str]:
    """Check a file, which the messages call ``path``, and return one line per damage."""
    damages: list[str] = []
    try:
        damages += [str(line) for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
        spaces = connection.execute("SELECT id, key, about FROM spaces").fetchall()
        damages += [f"space {number} is damaged" for number, key, text in spaces if parse_description(key, text) is None]
        keys = {number: key for number, key, _ in spaces}
        for space, key, data, stored_checksum in connection.execute("SELECT space, key, data, sum FROM entries"):
            if not is_intact(keys.get(space), key, data, stored_checksum):
                name = key.hex() if isinstance(key, bytes) else repr(key)
                damages.append(f"entry {name[:40]} of space {repr(space)[:40]} is damaged")
    except READ_ERRORS as error:
        damages.append(f"{path} is damaged: {error}. {suggest_repair(path)}")
    return damages


def rebuild(path: Path) -> int:
    """Replace a file that no process uses by a copy of its intact entries; return their number."""
    with _lock_exclusively(path) as damaged:
        if damaged is None:
            raise InputError(f"{path} cannot be read. Remove it with: inbedder cache clear {path.parent}")
        try:
            is_new(damaged, path)  # rejects a file that is not a cache
        except READ_ERRORS as error:
            raise InputError(f"{path} cannot be read ({error}). Remove it with: inbedder cache clear {path.parent}") from error
        with atomic_write(path) as new_path:
            try:
                # no other process opens the new file, so it needs no lock and no log, which the rename would leave behind
                with closing(sqlite3.connect(f"{new_path.as_uri()}?nolock=1", uri=True, isolation_level=None)) as rebuilt:
                    make_tables(rebuilt)
                    rebuilt.execute("PRAGMA journal_mode=OFF")
                    rebuilt.execute("BEGIN")
                    num_copied = _copy_intact_entries(damaged, rebuilt)
                    rebuilt.execute("COMMIT")
            except READ_ERRORS as error:
                raise InputError(f"{path} was not repaired ({error}) and is unchanged. Free space on its disk.") from error
            _remove_logs(path)  # those of the damaged file, which SQLite would apply to the new one
    return num_copied


def _copy_intact_entries(damaged: sqlite3.Connection, rebuilt: sqlite3.Connection) -> int:
    keys: dict[int, bytes] = {}
    for number, key, text in _read_rows(damaged, "spaces", "key, about"):
        if parse_description(key, text) is not None:
            keys[number] = key
            rebuilt.execute("INSERT OR IGNORE INTO spaces VALUES (?, ?, ?)", (number, key, text))
    for number, space, key, data, stored_checksum in _read_rows(damaged, "entries", "space, key, data, sum"):
        if is_intact(keys.get(space), key, data, stored_checksum):
            rebuilt.execute("INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?, ?)", (number, space, key, data, stored_checksum))
    time_now = int(time.time())
    for number, last_use in _read_rows(damaged, "uses", "used"):
        if isinstance(last_use, int) and 0 < last_use <= time_now:
            rebuilt.execute("INSERT OR IGNORE INTO uses SELECT id, ? FROM entries WHERE id = ?", (last_use, number))
    rebuilt.execute("INSERT OR IGNORE INTO uses SELECT id, ? FROM entries", (time_now,))
    with suppress(*READ_ERRORS):
        for limit in damaged.execute("SELECT value FROM settings WHERE name = 'limit' AND typeof(value) = 'integer'"):
            rebuilt.execute("INSERT OR IGNORE INTO settings VALUES ('limit', ?)", limit)
    return int(rebuilt.execute("SELECT count(*) FROM entries").fetchone()[0])


def _read_rows(connection: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """Yield the readable rows of a table in the order of their ids; after a damaged page, continue in growing steps."""
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
    """Remove a file that no process uses, SQLite's own files, what killed repairs left, and its folder if it is then empty."""
    try:
        with _lock_exclusively(path):
            path.unlink(missing_ok=True)
            _remove_logs(path)
            remove_leftovers(path.parent)
    except OSError as error:
        raise InputError(f"{path} cannot be removed ({error.strerror}). Check the permissions of its folder.") from error
    with suppress(OSError):  # the folder is not empty
        path.parent.rmdir()


def _remove_logs(path: Path) -> None:
    for suffix in LOG_SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@contextmanager
def _lock_exclusively(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Lock a file against all other users. The connection is None if SQLite cannot open the file, so that nobody uses it."""
    with closing(sqlite3.connect(path, timeout=1.0, isolation_level=None)) as connection:
        usable: sqlite3.Connection | None = connection
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=DELETE")  # also writes the log into the file and removes it
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise InputError(f"{path} is in use. Wait for the process that uses it, or stop it, and try again.") from error
        except READ_ERRORS as error:
            if "not a database" in str(error):
                usable = None
        yield usable
