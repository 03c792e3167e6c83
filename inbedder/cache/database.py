"""The SQLite file of a cache: its tables, what stands for its entries, and how it is opened.

A *space* is all that a result depends on beside text and instruction. An entry's checksum is bound to its space and its key, so
that a damaged or misplaced entry is told from a whole one. When each entry was last used stands in a table of its own: a lookup
that notes its use rewrites a few bytes and no vectors.
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
"""Seconds to wait for another process's transaction."""
READ_ERRORS = (sqlite3.Error, MemoryError, UnicodeDecodeError)
"""What a damaged, locked or full file makes SQLite raise: damaged sizes ask for more memory than there is, and damaged names come
back in its messages."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS spaces (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, about TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, space INTEGER NOT NULL, key BLOB NOT NULL, data BLOB NOT NULL,
                                    sum BLOB NOT NULL, UNIQUE (space, key));
CREATE TABLE IF NOT EXISTS uses (id INTEGER PRIMARY KEY, used INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


def hash_space(about: Mapping[str, Any]) -> bytes:
    """What stands for a space.

    Args:
        about: Everything that its entries depend on beside text and instruction, in terms of JSON; "model", the name of the first
            model that used it, does not count.

    Returns:
        16 bytes that differ for any change.
    """
    deciding = {name: value for name, value in about.items() if name != "model"}
    content = json.dumps({"format": FORMAT_VERSION, **deciding}, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(content.encode(), digest_size=16).digest()


def compute_checksum(space: bytes, key: bytes, data: bytes) -> bytes:
    """8 bytes that change with the space, the key and the data of an entry."""
    return hashlib.blake2b(data, digest_size=8, key=(space + key)[:64]).digest()


def is_intact(space: Any, key: Any, data: Any, found: Any) -> bool:
    """Whether an entry as it was read is what was written: damage can change the type of any of its parts."""
    return all(isinstance(part, bytes) for part in (space, key, data)) and found == compute_checksum(space, key, data)


def parse_description(key: Any, text: Any) -> dict[str, Any] | None:
    """What a space is about, read from its row; None when the row is damaged."""
    try:
        about = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    return about if isinstance(about, dict) and hash_space(about) == key else None


def suggest_repair(path: Path) -> str:
    """What to do about a damaged file."""
    return f"Mend it with: inbedder cache verify --repair {path.parent}, or remove it with: inbedder cache clear {path.parent}"


def open_file(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Open a cache's file, or make one.

    A file that cannot be written (a read-only mount, a full disk) is opened for reading alone.

    Args:
        path: The file.

    Returns:
        A connection that commits each statement by itself and may be closed by any thread, and whether it is for reading alone.

    Raises:
        InputError: When the file cannot be opened, is no cache, or is one of another format.
    """
    can_write = os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
    end = time.monotonic() + LOCK_TIMEOUT_SECONDS
    try:
        while can_write:
            try:
                return _open_for_writing(path), False
            except sqlite3.OperationalError as error:
                if "locked" in str(error) and time.monotonic() < end:  # SQLite does not wait while others make a new file
                    time.sleep(0.02)
                    continue
                if not path.exists() or not path.stat().st_size:
                    raise
                break
        return _open_for_reading(path), True
    except READ_ERRORS as error:
        message = f"{path} cannot be used as a cache ({error}). Choose another folder, make room on its disk, or remove it with: "
        raise InputError(f"{message}inbedder cache clear {path.parent}") from error


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
    """Make the tables of a new file; another process may do the same at once."""
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # so that the file shrinks when entries go
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(
        f"BEGIN IMMEDIATE;{SCHEMA}PRAGMA application_id={APPLICATION_ID};PRAGMA user_version={FORMAT_VERSION};COMMIT;"
    )


def _open_for_reading(path: Path) -> sqlite3.Connection:
    """Open without writing; where not even SQLite's shared memory can be made beside the file, what its log holds is not seen."""
    for mode in ("mode=ro", "immutable=1"):
        name = f"{path.absolute().as_uri()}?{mode}"
        connection = sqlite3.connect(name, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
        try:
            if not is_new(connection, path):
                return connection
        except sqlite3.OperationalError:
            connection.close()
            if mode == "immutable=1":
                raise
    raise InputError(f"{path} is empty and cannot be written. Choose another folder for the cache.")


def is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether a file holds no tables yet.

    Args:
        connection: To the file.
        path: The file, to name it.

    Returns:
        False for a cache of this format.

    Raises:
        InputError: When the file is no cache, or one of another format.
    """
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        return True
    marks = [connection.execute(f"PRAGMA {mark}").fetchone()[0] for mark in ("application_id", "user_version")]
    if marks[0] != APPLICATION_ID:
        raise InputError(f"{path} is no cache of inbedder. Choose another folder.")
    if marks[1] != FORMAT_VERSION:
        raise InputError(
            f"{path} is a cache of format {marks[1]}, and this version of inbedder keeps format {FORMAT_VERSION}. "
            f"Choose another folder, or remove it with: inbedder cache clear {path.parent}"
        )
    return False
