"""Vectors and answers on disk, found again by everything that made them: crash-safe, checked, shared by processes.

One SQLite file (write-ahead log, one transaction per batch) in a folder. A *space* is all that a result depends on beside text
and instruction: model, weights, precision, layer, pooling, template, lengths, sampling, and the version of this format. Whatever
changes, the space is another one and nothing old is found. An entry's key is a hash of its text and instruction; its checksum is
bound to space and key, so a damaged or misplaced entry is told from a whole one: it is named and computed again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inbedder.errors import InputError

logger = logging.getLogger(__name__)

Pair = tuple[str, str]
"""A text and an instruction."""
FILE = "inbedder.sqlite"
FORMAT = 1
APPLICATION = 0x1BEDDE12
CHUNK = 500
WAIT = 60.0
"""Seconds to wait for another process's transaction."""
TABLES = """
CREATE TABLE IF NOT EXISTS spaces (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, about TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS entries (space INTEGER NOT NULL, key BLOB NOT NULL, data BLOB NOT NULL, sum BLOB NOT NULL,
                                    PRIMARY KEY (space, key)) WITHOUT ROWID;
"""


def entry_key(text: str, instruction: str) -> bytes:
    """What stands for a text under an instruction.

    Args:
        text: Any string, lone surrogates included.
        instruction: Any string.

    Returns:
        16 bytes, other ones for every change.
    """
    instruction_bytes = instruction.encode("utf-8", "surrogatepass")
    content = len(instruction_bytes).to_bytes(8, "little") + instruction_bytes + text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=16).digest()


def space_key(about: Mapping[str, Any]) -> bytes:
    """What stands for a space.

    Args:
        about: Everything that its entries depend on beside text and instruction, in terms of JSON.

    Returns:
        16 bytes, other ones for every change.
    """
    content = json.dumps({"format": FORMAT, **about}, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(content.encode(), digest_size=16).digest()


class Store:
    """A folder that keeps entries."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open a store, or make one.

        Args:
            folder: Its folder; made when it does not exist.

        Raises:
            InputError: When the folder cannot be used, or holds a file of that name which is no store.
        """
        self.path = Path(folder).expanduser() / FILE
        self._local = threading.local()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path.parent} cannot be a cache ({error.strerror}). Choose another folder.") from error
        self._connection()

    def _connection(self) -> sqlite3.Connection:
        """This thread's connection; SQLite's must not cross a fork."""
        held: tuple[int, sqlite3.Connection] | None = getattr(self._local, "held", None)
        if held is None or held[0] != os.getpid():
            held = (os.getpid(), self._open())
            self._local.held = held
        return held[1]

    def _open(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)
            marks = [connection.execute(f"PRAGMA {mark}").fetchone()[0] for mark in ("application_id", "user_version")]
            is_new = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
            if not is_new and marks != [APPLICATION, FORMAT]:
                raise InputError(
                    f"{self.path} is no cache of this version of inbedder. Choose another folder, or remove the file."
                )
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            if is_new:
                connection.executescript(
                    f"BEGIN IMMEDIATE;{TABLES}PRAGMA application_id={APPLICATION};PRAGMA user_version={FORMAT};COMMIT;"
                )
        except sqlite3.Error as error:
            raise InputError(
                f"{self.path} cannot be used as a cache ({error}). Choose another folder, or remove the file."
            ) from error
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def get(self, about: Mapping[str, Any], keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Look entries up.

        Args:
            about: The space.
            keys: Of entries.

        Returns:
            Data by key, of the keys that are there and whole; damaged entries are named in a warning and dropped.
        """
        space = space_key(about)
        found: dict[bytes, bytes] = {}
        damaged: list[bytes] = []
        connection = self._connection()
        row = connection.execute("SELECT id FROM spaces WHERE key = ?", (space,)).fetchone()
        for start in range(0, len(keys) if row else 0, CHUNK):
            chunk = list(keys[start : start + CHUNK])
            marks = ",".join("?" * len(chunk))
            try:
                query = f"SELECT key, data, sum FROM entries WHERE space = ? AND key IN ({marks})"
                entries = connection.execute(query, (row[0], *chunk)).fetchall()
            except sqlite3.DatabaseError as error:
                logger.warning("%s: %d entries cannot be read (%s) and are computed again.", self.path, len(chunk), error)
                continue
            for key, data, checksum in entries:
                if checksum == _checksum(space, key, data):
                    found[key] = data
                else:
                    damaged.append(key)
        if damaged:
            names = ", ".join(_name(damaged_key) for damaged_key in damaged[:5])
            logger.warning("%s: %d damaged entries (%s) are computed again.", self.path, len(damaged), names)
        return found

    def put(self, about: Mapping[str, Any], entries: Iterable[tuple[bytes, bytes]]) -> bool:
        """Keep entries, all of them or none.

        Args:
            about: The space.
            entries: Keys and data.

        Returns:
            Whether they are kept; when the disk is full or the file damaged, a warning says so and work goes on without.
        """
        space = space_key(about)
        try:
            with self._transaction() as connection:
                connection.execute("INSERT OR IGNORE INTO spaces (key, about) VALUES (?, ?)", (space, json.dumps(dict(about))))
                number = connection.execute("SELECT id FROM spaces WHERE key = ?", (space,)).fetchone()[0]
                connection.executemany(
                    "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)",
                    ((number, key, data, _checksum(space, key, data)) for key, data in entries),
                )
        except sqlite3.Error as error:
            logger.warning("%s cannot be written (%s): results are not kept.", self.path, error)
            return False
        return True

    def info(self) -> list[dict[str, Any]]:
        """What is kept.

        Returns:
            One table a space: what it is about, entries, bytes of data.
        """
        rows = self._connection().execute(
            "SELECT about, count(entries.key), coalesce(sum(length(data)), 0) "
            "FROM spaces LEFT JOIN entries ON space = id GROUP BY id ORDER BY id"
        )
        return [{**json.loads(about), "entries": count, "bytes": size} for about, count, size in rows]

    def verify(self, *, remove: bool = False) -> list[str]:
        """Check the file and every entry.

        Args:
            remove: Drop damaged entries.

        Returns:
            What is wrong, one line each; nothing when all is well.
        """
        connection = self._connection()
        try:
            wrong = [line for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
            rows = connection.execute("SELECT spaces.key, space, entries.key, data, sum FROM entries JOIN spaces ON space = id")
            bad = [(number, key) for about, number, key, data, checksum in rows if checksum != _checksum(about, key, data)]
        except sqlite3.DatabaseError as error:
            return [f"{self.path} is damaged: {error}. inbedder cache clear begins anew."]
        if remove and bad:
            with self._transaction() as connection:
                connection.executemany("DELETE FROM entries WHERE space = ? AND key = ?", bad)
        return wrong + [f"entry {_name(key)} of space {number} is damaged" for number, key in bad]

    def clear(self) -> None:
        """Remove the store's own files; its folder goes only when nothing else is in it."""
        held = getattr(self._local, "held", None)
        if held is not None:
            held[1].close()
            self._local.held = None
        for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
            (self.path.parent / name).unlink(missing_ok=True)
        with suppress(OSError):  # the folder holds other files
            self.path.parent.rmdir()


def _name(key: Any) -> str:
    return key.hex() if isinstance(key, bytes) else repr(key)


def _checksum(space: bytes, key: Any, data: Any) -> bytes:
    if not (isinstance(key, bytes) and isinstance(data, bytes)):
        return b""
    return hashlib.blake2b(data, digest_size=8, key=(space + key)[:64]).digest()


@dataclass(frozen=True)
class CacheSpace:
    """One space of a store: results of one kind, by text and instruction."""

    store: Store
    """The store."""
    about: Mapping[str, Any]
    """All that a result depends on, beside text and instruction."""
    pack: Callable[[Any], bytes | None]
    """A result as bytes, or None for one that must not be kept."""
    unpack: Callable[[bytes], Any]
    """Its inverse."""

    def find(self, pairs: Sequence[Pair]) -> dict[Pair, tuple[bool, Any]]:
        """Whether the text was cut, and the result, of the pairs of text and instruction that are kept."""
        keys = {entry_key(*pair): pair for pair in pairs}
        found = self.store.get(self.about, list(keys))
        return {keys[key]: (data[:1] == b"\1", self.unpack(data[1:])) for key, data in found.items()}

    def keep(self, pairs: Sequence[Pair], cut: Sequence[bool], results: Sequence[Any]) -> None:
        """Keep the results of a batch, and whether each text was cut: all of it or nothing."""
        packed = zip(pairs, cut, (self.pack(result) for result in results), strict=True)
        entries = [(entry_key(*pair), bytes([was_cut]) + data) for pair, was_cut, data in packed if data is not None]
        self.store.put(self.about, entries)
