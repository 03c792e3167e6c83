"""``Index``: generic vectors of texts, built once; a query comes with what is asked, and the nearest texts are read again."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import inbedder.search.index_checks as checks
import inbedder.search.model_vectors as model_vectors
from inbedder.embedder import InBedder
from inbedder.encoding.guided import guided as guided_map
from inbedder.errors import InputError, shown_names
from inbedder.prompting.templates import resolve_instruction
from inbedder.search.arrow import fixed, matrix, schema_of, table_of
from inbedder.search.index_rows import GENERIC, ID, TEXT, Data, Rows, read_rows, typed
from inbedder.search.lance_engine import import_lancedb, lock
from inbedder.search.query import search as find_rows
from inbedder.search.storage import BUILT, CACHE, KEPT, Storage
from inbedder.vectors import Vectors, unit

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

BATCH = 4096
"""Rows that are embedded and committed together."""


class Index:
    """Texts that are searched by what is asked of them. Any number of processes may search; one at a time may write."""

    def __init__(self, storage: Storage, model: InBedder | None = None) -> None:
        """Take an open table; ``Index.create`` and ``Index.open`` are what to call.

        Args:
            storage: The table.
            model: The model that it was built with; None loads it when it is needed.

        Raises:
            InputError: When the model is another.
        """
        self.storage, self._model = storage, model
        if model is not None:
            storage.spec.check(model.spec, "The index was built", model_vectors.ADVICE)

    @cached_property
    def model(self) -> InBedder:
        """The model that the index was built with; what it reads is kept in the index's folder."""
        model = self._model
        if model is None:
            model = self.storage.spec.load(InBedder)
            self.storage.spec.check(model.spec, "The index was built", model_vectors.ADVICE)
        return model_vectors.with_cache(model, self.storage.folder / CACHE)

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        data: Data,
        model: str | InBedder = "mini",
        columns: Sequence[str] | None = None,
        *,
        text_column: str = TEXT,
        id_column: str | None = None,
        show_progress_bar: bool | None = None,
    ) -> Index:
        """Build an index, or go on with a build that was interrupted.

        Args:
            folder: Where it shall lie.
            data: A list of texts or a table: a list of dicts, a pandas frame or a pyarrow table.
            model: An ``InBedder`` or the name of one.
            columns: Columns to keep beside the texts; None keeps all.
            text_column: The column of the texts.
            id_column: The column of the ids. None takes "id" where there is one, else a hash of each row, by which a build that
                is begun again knows what is done.
            show_progress_bar: As for ``InBedder.encode``.

        Returns:
            The index.

        Raises:
            InputError: When the data or the folder cannot be used, or another process writes there.
            MissingExtraError: When LanceDB is not installed.
        """
        import_lancedb()
        rows = read_rows(data, text_column=text_column, id_column=id_column, columns=columns)
        if not rows.texts:
            raise InputError("An index needs at least one text.")
        embedder = InBedder(model) if isinstance(model, str) else model
        path = Path(folder)
        width = len(model_vectors.generic_vectors(embedder, rows.texts[:1])[0])
        with lock(path):
            index = cls(Storage.create(path, schema_of(rows, width), embedder.spec), embedder)
            index._append(rows, show_progress_bar)
            index.storage.compact(timedelta(milliseconds=1))  # nobody reads older versions of an unfinished index
            index.storage.make_indexes()
            index.storage.note(TEXT, **{BUILT: "yes"})
        return index

    @classmethod
    def open(cls, folder: str | os.PathLike[str], model: InBedder | None = None) -> Index:
        """Open an index.

        Args:
            folder: Where it lies.
            model: The model that it was built with, where it is loaded already; None loads it when it is needed.

        Returns:
            The index, which shows what other processes commit.

        Raises:
            InputError: When there is no index, or it was built with another model.
            MissingExtraError: When LanceDB is not installed.
        """
        import_lancedb()
        index = cls(Storage.open(folder), model)
        if not index.storage.is_built:
            logger.warning("%s: its build did not finish. Build it again with the same table; what is done is kept.", folder)
        return index

    def __len__(self) -> int:
        return len(self.storage)

    def add(
        self,
        data: Data,
        *,
        text_column: str = TEXT,
        id_column: str | None = None,
        columns: Sequence[str] | None = None,
        show_progress_bar: bool | None = None,
    ) -> int:
        """Add rows. Those whose id is there already are left as they are, so an interrupted call is made again.

        Args:
            data: As for ``create``.
            text_column: As for ``create``.
            id_column: As for ``create``.
            columns: Columns to keep; None keeps those of the index. Those that the data lack are empty.
            show_progress_bar: As for ``InBedder.encode``.

        Returns:
            How many rows were added.

        Raises:
            InputError: When a column or value does not fit, or another process writes.
        """
        rows = read_rows(data, text_column=text_column, id_column=id_column, columns=columns)
        new = [name for name in rows.columns if name not in self.storage.columns]
        if new:
            there = shown_names(self.storage.columns)
            raise InputError(f"The index has no column {shown_names(new)}. Name those to keep in columns=, of: {there}.")
        with lock(self.storage.folder):
            return self._append(rows, show_progress_bar)

    def _append(self, rows: Rows, show_progress_bar: bool | None) -> int:
        """Embed and commit the rows whose ids are not there yet, batch by batch; gives their number."""
        import pyarrow as pa

        there, schema = set(self.storage.ids()), self.storage.table.schema
        new = [number for number, name in enumerate(rows.ids) if name not in there]
        columns = {name: typed(values, schema.field(name).type, name) for name, values in rows.columns.items()}
        for start in range(0, len(new), BATCH):
            numbers = new[start : start + BATCH]
            texts = [rows.texts[number] for number in numbers]
            filled: dict[str, Any] = {ID: [rows.ids[number] for number in numbers], TEXT: texts}
            filled |= {name: column.take(pa.array(numbers)) for name, column in columns.items()}
            filled |= self._vectors(texts, show_progress_bar)
            empty = {field.name: pa.nulls(len(numbers), field.type) for field in schema if field.name not in filled}
            whole = filled | empty
            self.storage.append(table_of(whole, schema))
        return len(new)

    def _vectors(self, texts: list[str], show_progress_bar: bool | None) -> dict[str, Any]:
        """The columns of vectors, generic and instructed."""
        found = {GENERIC: fixed(model_vectors.generic_vectors(self.model, texts, show_progress_bar))}
        for name, known in self.storage.instructed.items():
            found[name] = fixed(model_vectors.instructed_vectors(self.model, texts, known["instruction"], show_progress_bar))
        return found

    def delete(self, ids: Sequence[str]) -> int:
        """Remove rows.

        Args:
            ids: Their ids; those that are not there are passed over.

        Returns:
            How many were there.

        Raises:
            InputError: When another process writes.
        """
        if isinstance(ids, str):
            raise InputError("delete takes a list of ids.")
        with lock(self.storage.folder):
            return self.storage.remove([str(name) for name in ids])

    def update(self, records: Sequence[Mapping[str, Any]]) -> int:
        """Change rows: texts, which are embedded again, or other columns. Each batch is committed whole.

        Args:
            records: One dict per row: "id", and the columns that change ("text" for the text).

        Returns:
            How many rows were changed.

        Raises:
            InputError: When an id or a column is not there, a value does not fit, or another process writes.
        """
        changes = {str(record[ID]): dict(record) for record in records if ID in record}
        if len(changes) < len(records):
            raise InputError('update takes one dict per row, each with another "id".')
        unknown = sorted({name for change in changes.values() for name in change} - set(self.storage.columns))
        if unknown:
            there = shown_names(self.storage.columns)
            raise InputError(f"The index has no column {shown_names(unknown)}. Its columns are: {there}.")
        with lock(self.storage.folder):
            missing = sorted(set(changes) - set(self.storage.ids()))
            if missing:
                raise InputError(f"There is no row with the id {shown_names(missing)}. Add it, or leave it out.")
            for start in range(0, len(changes), BATCH):
                self._change(dict(list(changes.items())[start : start + BATCH]))
        return len(changes)

    def _change(self, changes: Mapping[str, dict[str, Any]]) -> None:
        found = self.storage.take(list(changes))
        rows = [{**row, **changes[row[ID]], ID: row[ID]} for row in found.to_pylist()]
        own = [name for name in self.storage.columns if name not in (ID, TEXT)]
        checked = read_rows([{name: row[name] for name in (ID, TEXT, *own)} for row in rows])
        arrays = {name: typed(checked.columns[name], found.schema.field(name).type, name) for name in own}
        arrays |= {ID: checked.ids, TEXT: checked.texts} | self._vectors(checked.texts, False)
        self.storage.merge(table_of(arrays, found.schema))

    def instruct(self, instruction: str, *, sample: int | None = None, show_progress_bar: bool | None = None) -> str:
        """Add a column of vectors under an instruction, so that searches under it read the query alone.

        An interrupted call is made again and goes on; searches meanwhile read what is missing.

        Args:
            instruction: A question, or ``@name``.
            sample: How many texts are read, the others' vectors being mapped from the generic ones (see ``guided``); None
                reads every text.
            show_progress_bar: As for ``InBedder.encode``.

        Returns:
            The column's name.

        Raises:
            InputError: When the sample is too small, or another process writes.
        """
        import pyarrow as pa

        name = model_vectors.column_of(instruction)
        with lock(self.storage.folder):
            if name not in self.storage.instructed:
                width = len(model_vectors.instructed_vectors(self.model, ["a"], instruction)[0])
                facts = {"instruction": resolve_instruction(instruction), "read": "all" if sample is None else str(sample)}
                self.storage.add_column(pa.field(name, pa.list_(pa.float32(), width), metadata=facts))
            missing = sorted(self.storage.ids(f"{name} IS NULL"))
            mapped = None if sample is None or not missing else self._mapped(instruction, sample)
            for start in range(0, len(missing), BATCH):
                ids = missing[start : start + BATCH]
                if mapped is None:
                    rows = self.storage.take(ids, [ID, TEXT])
                    ids = rows[ID].to_pylist()
                    vectors = model_vectors.instructed_vectors(self.model, rows[TEXT].to_pylist(), instruction, show_progress_bar)
                else:
                    vectors = np.stack([mapped[name] for name in ids])
                self.storage.merge(pa.table({ID: ids, name: fixed(vectors)}))
        return name

    def _mapped(self, instruction: str, sample: int) -> dict[str, Vectors]:
        """Vectors under an instruction by id, of which a sample was read."""
        rows = self.storage.table.search().select([ID, TEXT, GENERIC]).limit(None).to_arrow().sort_by(ID)
        texts = rows[TEXT].to_pylist()
        vectors = guided_map(
            lambda places: model_vectors.instructed_vectors(self.model, [texts[place] for place in places], instruction),
            matrix(rows[GENERIC]),
            sample=sample,
        )
        return dict(zip(rows[ID].to_pylist(), unit(np.asarray(vectors)), strict=True))

    def search(
        self,
        query: str,
        instruction: str | None = None,
        k: int = 10,
        candidates: int = 200,
        where: str | None = None,
        hybrid: bool = False,
        *,
        weight: float | str = "auto",
    ) -> pd.DataFrame:
        """Find the rows nearest to a query in what is asked.

        Args:
            query: What is searched for.
            instruction: What is asked of the query and the texts, a question or ``@name``; None leaves the generic order.
            k: How many rows.
            candidates: How many of the rows that are nearest by generic vectors are read under the instruction.
            where: An SQL filter on the columns, such as "stars < 3".
            hybrid: Whether the candidates are found by their words too (BM25), fused by reciprocal rank.
            weight: Of the generic score beside the instructed one, from 0 to 1, or "auto" (``ranking``, evaluation/README.md).

        Returns:
            At most k rows, the best first: id, text, the other columns, score, generic_score, and under an instruction
            instructed_score and the model's answer.

        Raises:
            InputError: When the index is empty, the filter or the query cannot be used, or a number is out of range.
            MissingExtraError: When pandas is not installed.
        """
        return find_rows(
            self.storage, self.model, query, instruction, k=k, candidates=candidates, where=where, hybrid=hybrid, weight=weight
        )

    def compact(self, keep: timedelta = KEPT) -> None:
        """Merge small files, bring the search indexes up to date and remove old versions.

        Args:
            keep: How long versions stay that newer ones replaced; who reads one of them may go on for so long.

        Raises:
            InputError: When another process writes, or the disk is full.
        """
        with lock(self.storage.folder):
            self.storage.compact(keep)
            self.storage.make_indexes()

    def verify(self) -> list[str]:
        """Read everything and check it.

        Returns:
            What is wrong, one line each; nothing when all is well.
        """
        return checks.verify(self.storage)

    def info(self) -> dict[str, Any]:
        """What the index holds.

        Returns:
            Rows, columns, model, engine, instructions, versions, bytes on disk and whether the build has finished.
        """
        return checks.info(self.storage)
