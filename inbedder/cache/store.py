"""The cache of vectors and answers on disk: crash-safe, checked, and shared by processes.

A folder contains one SQLite file (write-ahead log, one transaction per batch), which ``database`` describes. Results are stored
by *space*, text and instruction. A space is described by everything else that determines a result: model, weights, compute dtype,
layer, pooling, template, lengths, sampling, and the version of this format. If any of these changes, the space is a new one and
no old result is found. An entry's key is a hash of its text and instruction. A damaged entry is never returned: a warning counts
it, and it is computed again, as are all results if the file cannot be read or written. Warnings contain no text, no key
and no path.
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
from inbedder.errors import InputError, format_value
from inbedder.runtime.user_paths import expand_path

logger = logging.getLogger(__name__)

Pair = tuple[str, str]
"""A text and an instruction."""
KEYS_PER_QUERY = 500
REPAIR_ADVICE = "Repair it with: inbedder cache verify --repair FOLDER."
USE_RESOLUTION_SECONDS = 60
"""Time within which further uses of an entry are not recorded."""


def hash_entry(text: str, instruction: str) -> bytes:
    """Hash a text and an instruction, lone surrogates included, to 16 bytes."""
    instruction_bytes = instruction.encode("utf-8", "surrogatepass")
    content = len(instruction_bytes).to_bytes(8, "little") + instruction_bytes + text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=16).digest()


@dataclass(frozen=True)
class _ThreadConnection:
    """A thread's connection, with its process and file. It is closed when the thread ends."""

    connection: sqlite3.Connection
    process: int
    file: tuple[int, int] | None
    read_only: bool

    def __del__(self, get_process: Callable[[], int] = os.getpid) -> None:  # when Python ends, this module's names are None
        if self.process == get_process():  # the parent process closes the copy in a forked child
            self.connection.close()


class Store:
    """A folder of cached entries."""

    def __init__(self, folder: str | os.PathLike[str], size: str | int | None = None) -> None:
        """Open a store, or create it.

        Args:
            folder: The store's folder; created if it does not exist.
            size: Maximum size, such as "5G" (see ``size_limit.parse_size``); the least recently used entries are evicted first.
                The limit is stored; None leaves it unchanged.

        Raises:
            InputError: If the folder cannot be used, its file is not a store, or the size is not valid.
        """
        self.path = expand_path(folder) / DATABASE_FILE
        self._limit = None if size is None else (parse_size(size),)
        self._local = threading.local()
        self._reported: set[str] = set()
        self._get_thread_connection()

    @property
    def read_only(self) -> bool:
        """Whether the file can be read but not written."""
        return self._get_thread_connection().read_only

    def _get_connection(self) -> sqlite3.Connection:
        return self._get_thread_connection().connection

    def _get_thread_connection(self) -> _ThreadConnection:
        """Return this thread's connection to the current file; a connection of SQLite must not cross a fork."""
        current: _ThreadConnection | None = getattr(self._local, "connection", None)
        identity = (os.getpid(), _identify_file(self.path))
        if current is None or (current.process, current.file) != identity:  # a fork, or the file was replaced
            self._local.connection = current = None
            connection, read_only = self._open()
            self._local.connection = current = _ThreadConnection(connection, os.getpid(), _identify_file(self.path), read_only)
        return current

    def _open(self) -> tuple[sqlite3.Connection, bool]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path.parent} cannot be a cache ({error.strerror}). Choose another folder.") from error
        connection, read_only = open_file(self.path)
        if read_only:
            message = "The cache %s cannot be written. Its entries are used, but no new ones are added."
            self._warn_once("write", message, self._name)
        elif self._limit is not None:
            with suppress(*READ_ERRORS):  # lookups report damage
                store_limit(connection, self._limit[0])
        return connection, read_only

    @property
    def _name(self) -> str:
        """The folder's name; its path is not logged."""
        return format_value(self.path.parent.name)

    def _warn_once(self, kind: str, message: str, *details: Any) -> None:
        if kind not in self._reported:
            self._reported.add(kind)
            logger.warning(message, *details)

    @contextmanager
    def _open_transaction(self, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Iterator[sqlite3.Connection]:
        connection = self._get_connection()
        connection.execute(f"PRAGMA busy_timeout = {timeout_seconds * 1000:.0f}")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # on a full disk SQLite has already rolled back
                connection.execute("ROLLBACK")
            raise

    def get(self, space: Mapping[str, Any], keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Look up the data of the keys of a space that are stored and intact; a warning counts damaged entries."""
        space_hash, distinct_keys = hash_space(space), set(keys)
        entries: dict[bytes, bytes] = {}
        num_damaged, outdated_uses, time_now = 0, [], int(time.time())
        for start in range(0, len(keys), KEYS_PER_QUERY):
            try:
                rows = self._read_rows(space_hash, keys[start : start + KEYS_PER_QUERY])
            except (*READ_ERRORS, InputError) as error:
                message = f"The cache %s cannot be read (%s). Results are computed again. {REPAIR_ADVICE}"
                self._warn_once("read", message, self._name, _explain(error))
                continue
            for number, key, data, stored_checksum, last_use in rows:
                if key in distinct_keys and is_intact(space_hash, key, data, stored_checksum):
                    entries[key] = data
                    if not isinstance(last_use, int) or abs(time_now - last_use) >= USE_RESOLUTION_SECONDS:
                        outdated_uses.append((number, time_now))
                else:
                    num_damaged += 1
        if num_damaged:
            logger.warning(f"The cache %s: %d damaged entries are computed again. {REPAIR_ADVICE}", self._name, num_damaged)
        if outdated_uses and not self.read_only:
            with suppress(*READ_ERRORS, InputError), self._open_transaction(timeout_seconds=0.1) as connection:
                connection.executemany("INSERT OR REPLACE INTO uses VALUES (?, ?)", outdated_uses)
        return entries

    def _read_rows(self, space_hash: bytes, keys: Sequence[bytes]) -> list[tuple[Any, ...]]:
        """Read id, key, data, checksum and last use of entries."""
        query = (
            "SELECT entries.id, entries.key, data, sum, used FROM entries LEFT JOIN uses ON uses.id = entries.id "
            f"WHERE space = (SELECT id FROM spaces WHERE key = ?) AND entries.key IN ({','.join('?' * len(keys))})"
        )
        return self._get_connection().execute(query, (space_hash, *keys)).fetchall()

    def put(self, space: Mapping[str, Any], entries: Iterable[tuple[bytes, bytes]]) -> bool:
        """Store a space's entries, all or none, and return whether they are stored; a full disk or damage is logged once."""
        space_hash, time_now = hash_space(space), int(time.time())
        try:
            if self.read_only:
                return False
            with self._open_transaction() as connection:
                values = (space_hash, json.dumps(dict(space)))
                connection.execute("INSERT OR IGNORE INTO spaces (key, about) VALUES (?, ?)", values)
                numbers = connection.execute("SELECT id FROM spaces WHERE key = ?", (space_hash,)).fetchall()
                if not numbers:
                    raise sqlite3.DatabaseError("its index is damaged")
                number = numbers[0][0]
                rows = [(number, key, data, compute_checksum(space_hash, key, data)) for key, data in entries]
                connection.executemany(
                    "INSERT INTO entries (space, key, data, sum) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (space, key) DO UPDATE SET data = excluded.data, sum = excluded.sum",
                    rows,
                )
                connection.executemany(
                    "INSERT OR REPLACE INTO uses SELECT id, ? FROM entries WHERE space = ? AND key = ?",
                    [(time_now, number, key) for _, key, _, _ in rows],
                )
                num_evicted = make_room(connection)
        except (*READ_ERRORS, InputError) as error:
            self._warn_once("write", "The cache %s cannot be written (%s). Results are not cached.", self._name, _explain(error))
            return False
        if num_evicted:
            logger.info("The cache %s is full. Evicted the %d least recently used entries.", self._name, num_evicted)
            shrink(connection)
        return True

    def info(self) -> list[dict[str, Any]]:
        """Describe the contents.

        Returns:
            One dictionary per space: its description, the number of entries ("entries") and the size of their data ("bytes").

        Raises:
            InputError: If the file is damaged.
        """
        query = (
            "SELECT spaces.key, about, count(entries.key), coalesce(sum(length(data)), 0) "
            "FROM spaces LEFT JOIN entries ON space = spaces.id GROUP BY spaces.id ORDER BY spaces.id"
        )
        with self._raise_read_errors():
            rows = self._get_connection().execute(query).fetchall()
        spaces = [(parse_description(key, text), count, size) for key, text, count, size in rows]
        if any(description is None for description, _, _ in spaces):
            raise InputError(f"{self.path} is damaged. {suggest_repair(self.path)}")
        return [
            {**description, "entries": count, "bytes": size} for description, count, size in spaces if description is not None
        ]

    def measure_usage(self) -> Usage:
        """Measure size, limit and oldest use; raise InputError if the file is damaged."""
        with self._raise_read_errors():
            return measure_usage(self._get_connection())

    @contextmanager
    def _raise_read_errors(self) -> Iterator[None]:
        """Raise errors of SQLite as InputError."""
        try:
            yield
        except READ_ERRORS as error:
            raise InputError(f"{self.path} cannot be read ({error}). {suggest_repair(self.path)}") from error

    def verify(self) -> list[str]:
        """Check the file and every entry, and return one line per damage."""
        return integrity.check(self._get_connection(), self.path)

    def repair(self) -> int:
        """Copy the intact entries into a new file, which then replaces the damaged one.

        Returns:
            The number of entries in the new file.

        Raises:
            InputError: If the file is in use, cannot be written, or contains nothing readable.
        """
        if self.read_only:
            raise InputError(f"{self.path} cannot be written, so it cannot be repaired.")
        self._local.connection = None
        return integrity.rebuild(self.path)

    def clear(self) -> None:
        """Remove the store's own files, and its folder if it is then empty.

        Raises:
            InputError: If another process or thread uses the files, or they cannot be removed.
        """
        self._local.connection = None
        integrity.remove(self.path)


def _identify_file(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, which distinguish it from a later file of the same name."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@dataclass(frozen=True)
class CacheSpace:
    """One space of a store: one kind of results, by text and instruction."""

    store: Store
    """The store."""
    description: Mapping[str, Any]
    """Everything except text and instruction that determines a result."""
    pack: Callable[[Any], bytes | None]
    """Serializes a result; returns None for a result that must not be stored."""
    unpack: Callable[[bytes], Any]
    """Deserializes a result."""

    def find(self, pairs: Sequence[Pair]) -> dict[Pair, tuple[bool, Any]]:
        """Look up pairs of text and instruction: whether the text was cut, and the result, of each stored pair."""
        keys = {hash_entry(*pair): pair for pair in pairs}
        entries = self.store.get(self.description, list(keys))
        return {keys[key]: (data[:1] == b"\1", self.unpack(data[1:])) for key, data in entries.items()}

    def put(self, pairs: Sequence[Pair], is_cut: Sequence[bool], results: Sequence[Any]) -> None:
        """Store the results of a batch, and whether each text was cut: all of them or none."""
        packed = zip(pairs, is_cut, (self.pack(result) for result in results), strict=True)
        entries = [(hash_entry(*pair), bytes([text_is_cut]) + data) for pair, text_is_cut, data in packed if data is not None]
        self.store.put(self.description, entries)


@dataclass(frozen=True)
class JointSpace:
    """Two spaces whose results one pass computes: a pair is found if both have it."""

    first: CacheSpace
    """Space of the first results."""
    second: CacheSpace
    """Space of the second results."""

    def find(self, pairs: Sequence[Pair]) -> dict[Pair, tuple[bool, Any]]:
        """Look up pairs of text and instruction: whether the text was cut, and both results, of each stored pair."""
        first_results = self.first.find(pairs)
        second_results = self.second.find(list(first_results))
        return {pair: (is_cut, (first_results[pair][1], result)) for pair, (is_cut, result) in second_results.items()}

    def put(self, pairs: Sequence[Pair], is_cut: Sequence[bool], results: Sequence[Any]) -> None:
        """Store both results of a batch."""
        for space, part in zip((self.first, self.second), zip(*results, strict=True), strict=True):
            space.put(pairs, is_cut, part)


def _explain(error: Exception) -> str:
    """Explain an error for the log, without its path."""
    cause = error.__cause__ if isinstance(error, InputError) else error
    return "its file is not usable" if cause is None else getattr(cause, "strerror", None) or str(cause)
