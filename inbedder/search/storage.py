"""The table of an index on disk: a LanceDB table with one writer at a time and atomic commits.

    reviews.index/texts.lance    id, text, the table's other columns, generic, earlier_layer, any number of instructed_<hash>
    reviews.index/.lock          held by the process that writes (``io.locks``)
    reviews.index/cache          cached vectors under instructions (see ``inbedder.cache.store``)

LanceDB writes new files next to the old ones and commits them with one new manifest, so a kill leaves the last commit. The
metadata of fields says whether the build has finished and which instruction a column belongs to; it is committed likewise.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from inbedder.errors import InputError, format_value
from inbedder.io.locks import LOCK_FILE
from inbedder.io.temporaries import is_temporary
from inbedder.runtime.user_paths import expand_path
from inbedder.search.index_rows import EARLIER, GENERIC, ID, INSTRUCTED, TEXT
from inbedder.search.lance_engine import connect, import_lancedb, translate_engine_errors
from inbedder.vector_spec import VectorSpec

logger = logging.getLogger(__name__)

TABLE_NAME, CACHE_FOLDER, SPEC_KEY, BUILT_KEY = "texts", "cache", "inbedder", "built"
MIN_INDEXED_ROWS = 100_000
"""With fewer rows every generic vector is compared; from here on an IVF-PQ index finds the nearest."""
MAX_FILTER_IDS = 500
"""Maximum number of ids in one filter."""
VERSION_RETENTION = timedelta(days=7)
"""Age at which replaced versions of the table are removed."""


class Storage:
    """The table of an index."""

    def __init__(self, folder: str | os.PathLike[str], table: Any) -> None:
        """Wrap an index's folder and open LanceDB table; call ``Storage.open`` or ``Storage.create`` instead."""
        self.folder, self.table = Path(folder), table

    def __repr__(self) -> str:
        return f"Storage({str(self.folder)!r})"

    @classmethod
    def create(cls, folder: str | os.PathLike[str], schema: Any, spec: VectorSpec) -> Storage:
        """Create an empty table, or open the table of an unfinished build that has rows.

        Args:
            folder: The index; the folder may not exist yet.
            schema: The columns, a pyarrow schema.
            spec: Everything that decides the vectors.

        Returns:
            The table.

        Raises:
            InputError: If the folder holds a finished index, an unfinished one of another model or table, or anything else.
        """
        path = Path(folder)
        cls.check_new(path)
        table = cls._open_table(path)
        schema = schema.with_metadata({SPEC_KEY: spec.to_json()})
        if table is None or not len(cls(path, table)):
            with translate_engine_errors(path):
                return cls(path, connect(path).create_table(TABLE_NAME, schema=schema, mode="overwrite"))
        storage = cls(path, table)
        if differences := storage.spec.differences(spec):
            reasons = "; ".join(differences)
            raise InputError(
                f"{format_value(str(path))} holds an unfinished index of another model ({reasons}). Remove it first."
            )
        if table.schema.names[: len(schema.names)] != schema.names:
            raise InputError(f"{format_value(str(path))} holds an unfinished index with other columns. Remove it first.")
        return storage

    @classmethod
    def check_new(cls, path: Path) -> None:
        """Check that an index can be built in a folder, before the model is loaded.

        Args:
            path: A new or empty folder, or one with an unfinished index.

        Raises:
            InputError: If it holds a finished index, or other files.
        """
        table = cls._open_table(path)
        if table is not None:
            if cls(path, table).is_built:
                raise InputError(f"{format_value(str(path))} already holds an index. Add to it, or choose another folder.")
        elif path.is_dir() and any(not _is_leftover(file) for file in path.iterdir()):
            raise InputError(f"{format_value(str(path))} is not empty and holds no index. Choose a new or empty folder.")
        elif path.exists() and not path.is_dir():
            raise InputError(f"{format_value(str(path))} is a file. Choose a new folder for the index.")

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Storage:
        """Open the table of an index.

        Args:
            folder: The index.

        Returns:
            The table, which shows what other processes commit.

        Raises:
            InputError: If the folder holds no index.
        """
        path = expand_path(folder)
        table = cls._open_table(path)
        if table is None:
            raise InputError(f"{format_value(str(path))} holds no index. Build one with Index.create or: inbedder index build")
        return cls(path, table)

    @staticmethod
    def _open_table(path: Path) -> Any:
        """Open the table in a folder, or return None when there is none."""
        versions = path / f"{TABLE_NAME}.lance" / "_versions"
        if not versions.is_dir() or not any(versions.iterdir()):
            return None
        with translate_engine_errors(path):
            table = connect(path).open_table(TABLE_NAME)
            metadata = table.schema.metadata or {}
        if SPEC_KEY.encode() not in metadata:
            raise InputError(f"{format_value(str(path))} holds a table that inbedder did not create. Choose another folder.")
        return table

    @property
    def schema(self) -> Any:
        """The columns of the table's newest version, a pyarrow schema."""
        with translate_engine_errors(self.folder):
            return self.table.schema

    @property
    def spec(self) -> VectorSpec:
        """Everything that decides the vectors.

        Raises:
            InputError: If the table's metadata is damaged.
        """
        try:
            return VectorSpec.from_json(self.schema.metadata[SPEC_KEY.encode()])
        except InputError as error:
            raise InputError(
                f"{format_value(str(self.folder))}: its metadata is damaged. Build the index again. {error}"
            ) from error

    @property
    def is_built(self) -> bool:
        """Whether the build has finished."""
        return BUILT_KEY.encode() in (self.schema.field(TEXT).metadata or {})

    @property
    def columns(self) -> list[str]:
        """The user's columns, id and text first."""
        return [name for name in self.schema.names if name not in (GENERIC, EARLIER) and not name.startswith(INSTRUCTED)]

    @property
    def general_columns(self) -> list[str]:
        """The columns of vectors without an instruction."""
        return [name for name in (GENERIC, EARLIER) if name in self.schema.names]

    @property
    def instructed(self) -> dict[str, dict[str, str]]:
        """The metadata of each column of instructed vectors, by the column's name."""
        fields = [field for field in self.schema if field.name.startswith(INSTRUCTED)]
        return {f.name: {key.decode(): value.decode() for key, value in (f.metadata or {}).items()} for f in fields}

    def __len__(self) -> int:
        return self.count_rows()

    def count_rows(self, where: str | None = None) -> int:
        """Count the rows that a filter passes."""
        with translate_engine_errors(self.folder):
            count: int = self.table.count_rows(where)
        return count

    def count_versions(self) -> int:
        """Count the versions of the table on disk."""
        with translate_engine_errors(self.folder):
            return len(self.table.list_versions())

    def list_ids(self, where: str | None = None) -> list[str]:
        """List the ids of the rows that a filter passes, in no particular order."""
        with translate_engine_errors(self.folder):
            query = self.table.search().select([ID])
            ids: list[str] = (query.where(where) if where else query).limit(None).to_arrow()[ID].to_pylist()
        return ids

    def take(self, ids: Sequence[str], columns: Sequence[str] | None = None) -> Any:
        """Read rows by their ids, in no particular order; unknown ids are ignored.

        Args:
            ids: Any number.
            columns: The columns to read; None reads all.

        Returns:
            A pyarrow table.
        """
        import pyarrow as pa

        tables = []
        with translate_engine_errors(self.folder):
            for start in range(0, max(len(ids), 1), MAX_FILTER_IDS):
                query = self.table.search().where(write_id_filter(ids[start : start + MAX_FILTER_IDS])).limit(None)
                tables.append((query if columns is None else query.select(list(columns))).to_arrow())
        return pa.concat_tables(tables)

    def append(self, rows: Any) -> None:
        """Commit new rows, all of them or none.

        Args:
            rows: A pyarrow table of the table's columns.

        Raises:
            InputError: If they cannot be written.
        """
        with translate_engine_errors(self.folder):
            self.table.add(rows)

    def merge(self, rows: Any) -> None:
        """Commit new values of existing rows, all of them or none.

        Args:
            rows: A pyarrow table of ids and some or all other columns.

        Raises:
            InputError: If they cannot be written.
        """
        with translate_engine_errors(self.folder):
            self.table.merge_insert(ID).when_matched_update_all().execute(rows)

    def remove(self, ids: Sequence[str]) -> int:
        """Remove rows.

        Args:
            ids: Any number.

        Returns:
            Number of rows removed.

        Raises:
            InputError: If they cannot be removed.
        """
        with translate_engine_errors(self.folder):
            filters = [write_id_filter(ids[start : start + MAX_FILTER_IDS]) for start in range(0, len(ids), MAX_FILTER_IDS)]
            return sum(self.table.delete(id_filter).num_deleted_rows for id_filter in filters)

    def add_column(self, field: Any) -> None:
        """Add an empty column.

        Args:
            field: Name, type and metadata, a pyarrow field.

        Raises:
            InputError: If it cannot be written.
        """
        with translate_engine_errors(self.folder):
            self.table.add_columns(field)

    def set_metadata(self, column: str, **metadata: str) -> None:
        """Set metadata of a column.

        Args:
            column: Its name.
            **metadata: Values by key.

        Raises:
            InputError: If they cannot be written.
        """
        with translate_engine_errors(self.folder):
            self.table.update_field_metadata({"path": column, "metadata": metadata})

    def make_indexes(self) -> None:
        """Create the full-text index and, from ``MIN_INDEXED_ROWS`` rows on, the index of generic vectors, where missing."""
        lancedb = import_lancedb()
        with translate_engine_errors(self.folder):
            indexed_columns = {index.columns[0] for index in self.table.list_indices()}
            if TEXT not in indexed_columns:
                self.table.create_index(TEXT, config=lancedb.index.FTS())
            if GENERIC not in indexed_columns and len(self) >= MIN_INDEXED_ROWS:
                self.table.create_index(GENERIC, config=lancedb.index.IvfPq(distance_type="cosine"))
                logger.info("%s: %s", self.folder, self.engine)

    @property
    def engine(self) -> str:
        """The method that finds the nearest vectors."""
        with translate_engine_errors(self.folder):
            indexes = [index for index in self.table.list_indices() if index.columns == [GENERIC]]
        if not indexes:
            return "exact: every vector is compared"
        count = indexes[0].num_indexed_rows or 0
        return f"{indexes[0].index_type} over {count:,} rows; {max(len(self) - count, 0):,} newer rows are compared exactly"

    def compact(self, keep: timedelta = VERSION_RETENTION) -> None:
        """Merge small files, update the search indexes, and remove versions older than ``keep``.

        Args:
            keep: Age at which replaced versions are removed; processes that read a younger one can continue.

        Raises:
            InputError: If the table cannot be written.
        """
        with translate_engine_errors(self.folder):
            self.table.optimize(cleanup_older_than=keep, delete_unverified=True)

    @property
    def size(self) -> int:
        """Bytes on disk, without the cache."""
        files = (self.folder / f"{TABLE_NAME}.lance").rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file())


def _is_leftover(file: Path) -> bool:
    """Return whether a file in a folder without an index is what a killed build can leave."""
    return file.name in (f"{TABLE_NAME}.lance", LOCK_FILE, CACHE_FOLDER) or is_temporary(file.name)


def write_id_filter(ids: Sequence[str]) -> str:
    """Write the SQL filter that passes rows with one of the ids; without ids it passes none."""
    if not ids:
        return "false"
    return f"{ID} IN ({', '.join(quote_sql(name) for name in ids)})"


def quote_sql(text: str) -> str:
    """Quote a string for SQL."""
    return "'" + text.replace("'", "''") + "'"
