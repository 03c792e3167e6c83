"""The table of an index on disk: a LanceDB table, one writer at a time, commits that are whole or not there.

    reviews.index/texts.lance    id, text, the table's other columns, generic, any number of instructed_<hash>
    reviews.index/writer.lock    held by the process that writes; the system frees it when that process ends, however it ends
    reviews.index/cache          what was read under instructions (see ``inbedder.cache.store``)

LanceDB writes new files beside the old ones and commits by one new manifest, so a kill leaves the last commit. What tells that a
build has finished, and which instruction a column belongs to, stands in the metadata of fields, which is committed likewise.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from inbedder.errors import InputError, shown
from inbedder.search.index_rows import GENERIC, ID, INSTRUCTED, TEXT
from inbedder.search.lance_engine import LOCK, connect, engine_errors, import_lancedb
from inbedder.vector_spec import VectorSpec

logger = logging.getLogger(__name__)

TABLE, CACHE, ABOUT, BUILT = "texts", "cache", "inbedder", "built"
EXACT_BELOW = 100_000
"""With fewer rows every generic vector is compared; from then on an IVF-PQ index finds the nearest."""
AT_ONCE = 500
"""Ids in one filter."""
KEPT = timedelta(days=7)
"""How long versions are kept that newer ones replaced."""


class Storage:
    """The table of an index."""

    def __init__(self, folder: str | os.PathLike[str], table: Any) -> None:
        """Take an index's folder and open LanceDB table; ``open`` and ``create`` make one."""
        self.folder, self.table = Path(folder), table

    @classmethod
    def create(cls, folder: str | os.PathLike[str], schema: Any, spec: VectorSpec) -> Storage:
        """Make an empty table, or open the one of a build that did not finish.

        Args:
            folder: The index; the folder need not be there.
            schema: The columns, a pyarrow schema.
            spec: What decides the vectors.

        Returns:
            The table.

        Raises:
            InputError: When the folder holds a finished index, an unfinished one of another model or table, or anything else.
        """
        path = Path(folder)
        found = cls._table_of(path)
        if found is None:
            strange = [] if not path.exists() else [file.name for file in path.iterdir() if file.name != f"{TABLE}.lance"]
            if set(strange) - {LOCK, CACHE}:
                raise InputError(f"{shown(str(path))} is not empty and holds no index. Choose a new or empty folder.")
            with engine_errors(path):
                schema = schema.with_metadata({ABOUT: spec.to_json()})
                return cls(path, connect(path).create_table(TABLE, schema=schema))
        storage = cls(path, found)
        if storage.is_built:
            raise InputError(f"{shown(str(path))} holds an index already. Add to it, or choose another folder.")
        if differences := storage.spec.differences(spec):
            reasons = "; ".join(differences)
            raise InputError(f"{shown(str(path))} holds an unfinished index of another model ({reasons}). Remove it first.")
        if found.schema.names[: len(schema.names)] != schema.names:
            raise InputError(f"{shown(str(path))} holds an unfinished index of a table with other columns. Remove it first.")
        return storage

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Storage:
        """Open the table of an index.

        Args:
            folder: The index.

        Returns:
            The table, which shows what other processes commit.

        Raises:
            InputError: When there is none.
        """
        path = Path(folder)
        table = cls._table_of(path) if path.is_dir() else None
        if table is None:
            raise InputError(f"{shown(str(path))} holds no index. Make one with Index.create or: inbedder index build")
        return cls(path, table)

    @staticmethod
    def _table_of(path: Path) -> Any:
        if not (path / f"{TABLE}.lance" / "_versions").is_dir() or not any((path / f"{TABLE}.lance" / "_versions").iterdir()):
            return None
        with engine_errors(path):
            table = connect(path).open_table(TABLE)
        if ABOUT.encode() not in (table.schema.metadata or {}):
            raise InputError(f"{shown(str(path))} holds a table that inbedder did not make. Choose another folder.")
        return table

    @property
    def spec(self) -> VectorSpec:
        """What decides the vectors.

        Raises:
            InputError: When the table's metadata are damaged.
        """
        try:
            return VectorSpec.from_json(self.table.schema.metadata[ABOUT.encode()])
        except InputError as error:
            raise InputError(f"{shown(str(self.folder))}: its metadata are damaged. Build the index again. {error}") from error

    @property
    def is_built(self) -> bool:
        """Whether the build has finished."""
        return BUILT.encode() in (self.table.schema.field(TEXT).metadata or {})

    @property
    def columns(self) -> list[str]:
        """The columns that the user gave, id and text first."""
        return [name for name in self.table.schema.names if name != GENERIC and not name.startswith(INSTRUCTED)]

    @property
    def instructed(self) -> dict[str, dict[str, str]]:
        """The columns of instructed vectors, and what is known of each."""
        fields = [field for field in self.table.schema if field.name.startswith(INSTRUCTED)]
        return {f.name: {key.decode(): value.decode() for key, value in (f.metadata or {}).items()} for f in fields}

    def __len__(self) -> int:
        count: int = self.table.count_rows()
        return count

    def ids(self, where: str | None = None) -> list[str]:
        """Read the ids of the rows that a filter passes, in no order."""
        query = self.table.search().select([ID])
        found: list[str] = (query.where(where) if where else query).limit(None).to_arrow()[ID].to_pylist()
        return found

    def take(self, ids: Sequence[str], columns: Sequence[str] | None = None) -> Any:
        """Rows by their ids, in no order; ids that are not there are left out.

        Args:
            ids: Any number.
            columns: What is read; None reads all.

        Returns:
            A pyarrow table.
        """
        import pyarrow as pa

        tables = []
        for start in range(0, max(len(ids), 1), AT_ONCE):
            query = self.table.search().where(among(ids[start : start + AT_ONCE])).limit(None)
            tables.append((query if columns is None else query.select(list(columns))).to_arrow())
        return pa.concat_tables(tables)

    def append(self, rows: Any) -> None:
        """Commit new rows, all of them or none.

        Args:
            rows: A pyarrow table of the table's columns.

        Raises:
            InputError: When they cannot be written.
        """
        with engine_errors(self.folder):
            self.table.add(rows)

    def merge(self, rows: Any) -> None:
        """Commit new values of rows that are there, all of them or none.

        Args:
            rows: A pyarrow table of ids and some or all other columns.

        Raises:
            InputError: When they cannot be written.
        """
        with engine_errors(self.folder):
            self.table.merge_insert(ID).when_matched_update_all().execute(rows)

    def remove(self, ids: Sequence[str]) -> int:
        """Remove rows.

        Args:
            ids: Any number.

        Returns:
            How many rows were there.

        Raises:
            InputError: When they cannot be removed.
        """
        with engine_errors(self.folder):
            starts = range(0, len(ids), AT_ONCE)
            return sum(self.table.delete(among(ids[start : start + AT_ONCE])).num_deleted_rows for start in starts)

    def add_column(self, field: Any) -> None:
        """Add an empty column.

        Args:
            field: Name, type and metadata, a pyarrow field.

        Raises:
            InputError: When it cannot be written.
        """
        with engine_errors(self.folder):
            self.table.add_columns(field)

    def note(self, column: str, **facts: str) -> None:
        """Keep facts with a column.

        Args:
            column: Its name.
            **facts: What becomes known of it.

        Raises:
            InputError: When they cannot be written.
        """
        with engine_errors(self.folder):
            self.table.update_field_metadata({"path": column, "metadata": facts})

    def make_indexes(self) -> None:
        """Make the full-text index, and from ``EXACT_BELOW`` rows on one of the generic vectors, where they are missing."""
        lancedb = import_lancedb()
        with engine_errors(self.folder):
            there = {index.columns[0] for index in self.table.list_indices()}
            if TEXT not in there:
                self.table.create_index(TEXT, config=lancedb.index.FTS())
            if GENERIC not in there and len(self) >= EXACT_BELOW:
                self.table.create_index(GENERIC, config=lancedb.index.IvfPq(distance_type="cosine"))
                logger.info("%s: %s", self.folder, self.engine)

    @property
    def engine(self) -> str:
        """How the nearest vectors are found."""
        found = [index for index in self.table.list_indices() if index.columns == [GENERIC]]
        if not found:
            return "exact: every vector is compared"
        indexed = found[0].num_indexed_rows or 0
        return f"{found[0].index_type} over {indexed:,} rows; {max(len(self) - indexed, 0):,} newer rows are compared exactly"

    def compact(self, keep: timedelta = KEPT) -> None:
        """Merge small files, bring search indexes up to date, and remove versions that are older than ``keep``.

        Args:
            keep: How long replaced versions stay; readers that began before then may go on.

        Raises:
            InputError: When it cannot be written.
        """
        with engine_errors(self.folder):
            self.table.optimize(cleanup_older_than=keep, delete_unverified=True)

    @property
    def size(self) -> int:
        """Bytes on disk, the cache not counted."""
        files = (self.folder / f"{TABLE}.lance").rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file())


def among(ids: Sequence[str]) -> str:
    """Write the SQL filter of rows that have one of some ids; without ids no row passes it."""
    if not ids:
        return "false"
    return f"{ID} IN ({', '.join(quoted(name) for name in ids)})"


def quoted(text: str) -> str:
    """A string as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
