"""The SQLite file of a cache: its tables, the hashes of its entries, and opening it.

A *space* is the set of all entries with the same description: everything except text and instruction that determines a result.
An entry's checksum covers its space and its key, so that a damaged or misplaced entry is detected. The last use of each entry is
in a separate table, so that recording a use rewrites a few bytes and no vectors.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inbedder.errors import InputError

DATABASE_FILE = "inbedder.sqlite"
FORMAT_VERSION = 2
APPLICATION_ID = 0x1BEDDE12
LOCK_TIMEOUT_SECONDS = 60.0
"""Time to wait for another process's transaction."""
READ_ERRORS = (sqlite3.Error, MemoryError, UnicodeDecodeError)
"""Errors of a damaged, locked or full file. Damaged sizes request more memory than there is, and SQLite's messages may contain
damaged names that are not UTF-8."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS spaces (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, about TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, space INTEGER NOT NULL, key BLOB NOT NULL, data BLOB NOT NULL,
                                    sum BLOB NOT NULL, UNIQUE (space, key));
CREATE TABLE IF NOT EXISTS uses (id INTEGER PRIMARY KEY, used INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


def hash_space(description: Mapping[str, Any]) -> bytes:
    """Hash a space's description to 16 bytes; its "model", the name that first used the space, is ignored."""
    fields = {name: value for name, value in description.items() if name != "model"}
    content = json.dumps({"format": FORMAT_VERSION, **fields}, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(content.encode(), digest_size=16).digest()


def compute_checksum(space: bytes, key: bytes, data: bytes) -> bytes:
    """Compute the checksum of an entry: 8 bytes that depend on its space, key and data."""
    return hashlib.blake2b(data, digest_size=8, key=(space + key)[:64]).digest()


def is_intact(space: Any, key: Any, data: Any, stored_checksum: Any) -> bool:
    """Return whether an entry is what was written; damage can change the type of any of its parts."""
    return all(isinstance(part, bytes) for part in (space, key, data)) and stored_checksum == compute_checksum(space, key, data)


def parse_description(key: Any, text: Any) -> dict[str, Any] | None:
    """Parse a space's description from its row; None if the row is damaged."""
    try:
        description = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    return description if isinstance(description, dict) and hash_space(description) == key else None


def suggest_repair(path: Path) -> str:
    """Say how to repair or remove a damaged file."""
    return f"Repair it with: inbedder cache verify --repair {path.parent}, or remove it with: inbedder cache clear {path.parent}"


def open_file(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Open a cache's file, or create it.

    A file that cannot be written (a read-only mount, a full disk) is opened read-only.

    Args:
        path: The file.

    Returns:
        A connection that commits each statement by itself and may be closed by any thread, and whether it is read-only.

    Raises:
        InputError: If the file cannot be opened, is not a cache, or has another format.
    """
    can_write = os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    try:
        while can_write:
            try:
                return _open_for_writing(path), False
            except sqlite3.OperationalError as error:
                if "locked" in str(error) and time.monotonic() < deadline:  # SQLite does not wait for another process's new file
                    time.sleep(0.02)
                    continue
                if not path.exists() or not path.stat().st_size:
                    raise
                break
        return _open_for_reading(path), True
    except READ_ERRORS as error:
        raise InputError(
            f"{path} cannot be used as a cache ({error}). Choose another folder, free space on its disk, or remove it with: "
            f"inbedder cache clear {path.parent}"
        ) from error


def _open_for_writing(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        if is_new(connection, path):
            make_tables(connection)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def make_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of a new file, unless another process creates them at the same time."""
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # so that the file shrinks when entries are removed
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(
        f"BEGIN IMMEDIATE;{SCHEMA}PRAGMA application_id={APPLICATION_ID};PRAGMA user_version={FORMAT_VERSION};COMMIT;"
    )


def _open_for_reading(path: Path) -> sqlite3.Connection:
    """Open without writing. If even SQLite's shared-memory file cannot be created, the contents of its log are not visible."""
    for mode in ("mode=ro", "immutable=1"):
        uri = f"{path.absolute().as_uri()}?{mode}"
        connection = sqlite3.connect(uri, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
        try:
            if not is_new(connection, path):
                return connection
        except sqlite3.OperationalError:
            connection.close()
            if mode == "immutable=1":
                raise
    raise InputError(f"{path} is empty and cannot be written. Choose another folder for the cache.")


def is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether a file has no tables yet; reject one that is not a cache of this format."""
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        return True
    application_id, format_version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if application_id != APPLICATION_ID:
        raise InputError(f"{path} is not a cache of inbedder. Choose another folder.")
    if format_version != FORMAT_VERSION:
        raise InputError(
            f"{path} is a cache of format {format_version}, and this version of inbedder uses format {FORMAT_VERSION}. "
            f"Choose another folder, or remove it with: inbedder cache clear {path.parent}"
        )
    return False
