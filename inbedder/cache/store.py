"""Vectors and answers on disk, found again by everything that made them: crash-safe, checked, shared by processes.

One SQLite file (write-ahead log, one transaction per batch) in a folder; ``cache_file`` says what is in it. A *space* is all that
a result depends on beside text and instruction: model, weights, precision, layer, pooling, template, lengths, sampling, and the
version of this format. Whatever changes, the space is another one and nothing old is found. An entry's key is a hash of its text
and instruction. A damaged entry is never returned: a warning counts it, and it is computed again; so it is when the file cannot
be read or written at all. Warnings hold no text and no key.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inbedder.cache import integrity
from inbedder.cache.database import (
    DATABASE_FILE,
    LOCK_TIMEOUT_SECONDS,
    READ_ERRORS,
    compute_checksum,
    hash_space,
    is_intact,
    open_file,
    parse_description,
    suggest_repair,
)
from inbedder.cache.size_limit import Usage, make_room, measure_usage, parse_size, shrink, store_limit
from inbedder.errors import InputError

logger = logging.getLogger(__name__)

Pair = tuple[str, str]
"""A text and an instruction."""
KEYS_PER_QUERY = 500
USE_RESOLUTION_SECONDS = 60
"""Seconds within which further uses of an entry are not noted."""


def hash_entry(text: str, instruction: str) -> bytes:
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


@dataclass(frozen=True)
class _ThreadConnection:
    """A thread's connection, and the process and file that it belongs to. It is closed when the thread ends."""

    connection: sqlite3.Connection
    process: int
    file: tuple[int, int] | None
    read_only: bool

    def __del__(self) -> None:
        if self.process == os.getpid():  # a forked child's copy is its parent's to close
            self.connection.close()


class Store:
    """A folder that keeps entries."""

    def __init__(self, folder: str | os.PathLike[str], size: str | int | None = None) -> None:
        """Open a store, or make one.

        Args:
            folder: Its folder; made when it does not exist.
            size: Most room that it may take, such as "5G" (see ``cache_size.parse_size``): what was used least recently goes
                first. The store remembers it; None leaves it as it is.

        Raises:
            InputError: When the folder cannot be used, holds a file of that name which is no store, or the size cannot be read.
        """
        self.path = Path(folder).expanduser() / DATABASE_FILE
        self._limit = None if size is None else (parse_size(size),)
        self._local = threading.local()
        self._warned: set[str] = set()
        self._held()

    @property
    def read_only(self) -> bool:
        """Whether the file can be read and not written."""
        return self._held().read_only

    def _connection(self) -> sqlite3.Connection:
        return self._held().connection

    def _held(self) -> _ThreadConnection:
        """This thread's connection to the file that is there now; SQLite's must not cross a fork."""
        held: _ThreadConnection | None = getattr(self._local, "held", None)
        if held is None or (held.process, held.file) != (os.getpid(), _identify_file(self.path)):  # or somebody removed the file
            self._local.held = held = None
            connection, read_only = self._open()
            self._local.held = held = _ThreadConnection(connection, os.getpid(), _identify_file(self.path), read_only)
        return held

    def _open(self) -> tuple[sqlite3.Connection, bool]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path.parent} cannot be a cache ({error.strerror}). Choose another folder.") from error
        connection, read_only = open_file(self.path)
        if read_only:
            self._warn_once("write", "%s cannot be written: what it holds is used, and nothing is added.", self.path)
        elif self._limit is not None:
            with suppress(*READ_ERRORS):  # damage is told of when something is looked up
                store_limit(connection, self._limit[0])
        return connection, read_only

    def _warn_once(self, kind: str, message: str, *details: Any) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            logger.warning(message, *details)

    @contextmanager
    def _transaction(self, wait: float = LOCK_TIMEOUT_SECONDS) -> Iterator[sqlite3.Connection]:
        connection = self._connection()
        connection.execute(f"PRAGMA busy_timeout = {wait * 1000:.0f}")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk has rolled back by itself
                connection.execute("ROLLBACK")
            raise

    def get(self, about: Mapping[str, Any], keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Look entries up.

        Args:
            about: The space.
            keys: Of entries.

        Returns:
            Data by key, of the keys that are there and whole; damaged entries are counted in a warning and left out.
        """
        space, asked = hash_space(about), set(keys)
        found: dict[bytes, bytes] = {}
        damaged, unused, now = 0, [], int(time.time())
        for start in range(0, len(keys), KEYS_PER_QUERY):
            try:
                entries = self._read(space, keys[start : start + KEYS_PER_QUERY])
            except (*READ_ERRORS, InputError) as error:
                self._warn_once(
                    "read", "%s cannot be read (%s): results are computed again. %s", self.path, error, suggest_repair(self.path)
                )
                continue
            for number, key, data, found_sum, used in entries:
                if key in asked and is_intact(space, key, data, found_sum):
                    found[key] = data
                    if not isinstance(used, int) or abs(now - used) >= USE_RESOLUTION_SECONDS:
                        unused.append((number, now))
                else:
                    damaged += 1
        if damaged:
            logger.warning("%s: %d damaged entries are computed again. %s", self.path, damaged, suggest_repair(self.path))
        if unused and not self.read_only:
            with suppress(*READ_ERRORS, InputError), self._transaction(wait=0.1) as connection:  # only decides what goes first
                connection.executemany("INSERT OR REPLACE INTO uses VALUES (?, ?)", unused)
        return found

    def _read(self, space: bytes, keys: Sequence[bytes]) -> list[tuple[Any, ...]]:
        """Id, key, data, checksum and last use of entries."""
        query = (
            "SELECT entries.id, entries.key, data, sum, used FROM entries LEFT JOIN uses ON uses.id = entries.id "
            f"WHERE space = (SELECT id FROM spaces WHERE key = ?) AND entries.key IN ({','.join('?' * len(keys))})"
        )
        return self._connection().execute(query, (space, *keys)).fetchall()

    def put(self, about: Mapping[str, Any], entries: Iterable[tuple[bytes, bytes]]) -> bool:
        """Keep entries, all of them or none.

        Args:
            about: The space.
            entries: Keys and data.

        Returns:
            Whether they are kept; when the disk is full or the file damaged, a warning says so once and work goes on without.
        """
        space, now = hash_space(about), int(time.time())
        try:
            if self.read_only:
                return False
            with self._transaction() as connection:
                connection.execute("INSERT OR IGNORE INTO spaces (key, about) VALUES (?, ?)", (space, json.dumps(dict(about))))
                numbers = connection.execute("SELECT id FROM spaces WHERE key = ?", (space,)).fetchall()
                if not numbers:
                    raise sqlite3.DatabaseError("its index is damaged")
                number = numbers[0][0]
                rows = [(number, key, data, compute_checksum(space, key, data)) for key, data in entries]
                connection.executemany(
                    "INSERT INTO entries (space, key, data, sum) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (space, key) DO UPDATE SET data = excluded.data, sum = excluded.sum",
                    rows,
                )
                connection.executemany(
                    "INSERT OR REPLACE INTO uses SELECT id, ? FROM entries WHERE space = ? AND key = ?",
                    [(now, number, key) for _, key, _, _ in rows],
                )
                removed = make_room(connection)
        except (*READ_ERRORS, InputError) as error:
            self._warn_once("write", "%s cannot be written (%s): results are not kept.", self.path, error)
            return False
        if removed:
            logger.info("%s is full: %d entries that were not used lately are removed.", self.path, removed)
            shrink(connection)
        return True

    def info(self) -> list[dict[str, Any]]:
        """What is kept.

        Returns:
            One table per space: what it is about, entries, bytes of data.

        Raises:
            InputError: When the file is damaged.
        """
        query = (
            "SELECT spaces.key, about, count(entries.key), coalesce(sum(length(data)), 0) "
            "FROM spaces LEFT JOIN entries ON space = spaces.id GROUP BY spaces.id ORDER BY spaces.id"
        )
        with self._readable():
            rows = self._connection().execute(query).fetchall()
        spaces = [(parse_description(key, about), count, size) for key, about, count, size in rows]
        if any(about is None for about, _, _ in spaces):
            raise InputError(f"{self.path} is damaged. {suggest_repair(self.path)}")
        return [{**about, "entries": count, "bytes": size} for about, count, size in spaces if about is not None]

    def measure_usage(self) -> Usage:
        """How much room it takes, how much it may take, and when what would go first was used.

        Returns:
            Size, limit and oldest use.

        Raises:
            InputError: When the file is damaged.
        """
        with self._readable():
            return measure_usage(self._connection())

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except READ_ERRORS as error:
            raise InputError(f"{self.path} cannot be read ({error}). {suggest_repair(self.path)}") from error

    def verify(self) -> list[str]:
        """Check the file and every entry; return one line per damage."""
        return integrity.check(self._connection(), self.path)

    def repair(self) -> int:
        """Copy the whole entries into a fresh file, which then takes the place of the damaged one.

        Returns:
            How many entries are kept.

        Raises:
            InputError: When the file is in use, cannot be written, or holds nothing that can be read.
        """
        if self.read_only:
            raise InputError(f"{self.path} cannot be written, so it cannot be mended.")
        self._local.held = None
        return integrity.rebuild(self.path)

    def clear(self) -> None:
        """Remove the store's own files; its folder goes only when nothing else is in it.

        Raises:
            InputError: When another process or thread uses them, or they cannot be removed.
        """
        self._local.held = None
        integrity.remove(self.path)


def _identify_file(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one of its name."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@dataclass(frozen=True)
class CacheSpace:
    """One space of a store: results of one kind, by text and instruction."""

    store: Store
    """The store."""
    description: Mapping[str, Any]
    """All that a result depends on, beside text and instruction."""
    pack: Callable[[Any], bytes | None]
    """A result as bytes, or None for one that must not be kept."""
    unpack: Callable[[bytes], Any]
    """Its inverse."""

    def find(self, pairs: Sequence[Pair]) -> dict[Pair, tuple[bool, Any]]:
        """Whether the text was cut, and the result, of the pairs of text and instruction that are kept."""
        keys = {hash_entry(*pair): pair for pair in pairs}
        found = self.store.get(self.description, list(keys))
        return {keys[key]: (data[:1] == b"\1", self.unpack(data[1:])) for key, data in found.items()}

    def put(self, pairs: Sequence[Pair], cut: Sequence[bool], results: Sequence[Any]) -> None:
        """Keep the results of a batch, and whether each text was cut: all of it or nothing."""
        packed = zip(pairs, cut, (self.pack(result) for result in results), strict=True)
        entries = [(hash_entry(*pair), bytes([was_cut]) + data) for pair, was_cut, data in packed if data is not None]
        self.store.put(self.description, entries)
