"""``Index``: generic vectors of texts, built once; each search and each question to group by has its own instruction."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

import inbedder.search.index_checks as checks
import inbedder.search.model_vectors as model_vectors
from inbedder.embedder import InBedder
from inbedder.errors import InputError, format_names
from inbedder.prompting.templates import resolve_instruction
from inbedder.runtime.user_paths import expand_path
from inbedder.search.arrow import build_schema, build_table, to_list_array
from inbedder.search.asking import estimate_vectors, group_rows, read_ordered, read_rows_to_group
from inbedder.search.index_rows import EARLIER, GENERIC, ID, TEXT, Data, Rows, read_rows, to_typed_array
from inbedder.search.lance_engine import import_lancedb, lock
from inbedder.search.query import search_rows
from inbedder.search.sql_filter import check_filter
from inbedder.search.storage import BUILT_KEY, CACHE_FOLDER, VERSION_RETENTION, Storage

if TYPE_CHECKING:
    import pandas as pd

    from inbedder.grouping.clustering import ClusterResult

logger = logging.getLogger(__name__)

BATCH_ROWS = 4096
"""Rows that are embedded and committed together."""


class Index:
    """A folder of texts to search under any instruction. Any number of processes may search; one at a time may write.

    Example:
        >>> from inbedder.search import Index
        >>> texts = ["The battery died after a week", "The box was crushed", "Great price"]
        >>> index = Index.create("first.index", texts)
        >>> rows = index.search("My parcel was damaged", "What is the complaint about?", k=2)
        >>> rows["text"].tolist()[0]
        'The box was crushed'
    """

    def __init__(self, storage: Storage, model: InBedder | None = None) -> None:
        """Wrap an open table; call ``Index.create`` or ``Index.open`` instead.

        Args:
            storage: The table.
            model: The model that it was built with; None loads the model when it is needed.

        Raises:
            InputError: If the table was built with another model.
        """
        self.storage, self._model = storage, model
        if model is not None:
            storage.spec.check(model.spec, "The index was built", model_vectors.ADVICE)

    def __repr__(self) -> str:
        return f"Index({str(self.storage.folder)!r})"

    @cached_property
    def model(self) -> InBedder:
        """The model that the index was built with; it caches vectors in the index's folder."""
        model = self._model
        if model is None:
            model = self.storage.spec.load(InBedder)
            self.storage.spec.check(model.spec, "The index was built", model_vectors.ADVICE)
        return model_vectors.with_cache(model, self.storage.folder / CACHE_FOLDER)

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
        """Build an index, or resume an interrupted build.

        Args:
            folder: Path of the index.
            data: A list of texts, a table (a list of dicts, a pandas frame or a pyarrow table), or the result of ``read_rows``.
            model: An ``InBedder`` or the name of one.
            columns: Columns to store with the texts; None stores all.
            text_column: The column of the texts.
            id_column: The column of the ids. None takes the column "id" if there is one, else a hash of each row, by which a
                resumed build knows the rows that it has.
            show_progress_bar: Whether to show a progress bar; None shows one for long work in a terminal.

        Returns:
            The index.

        Raises:
            InputError: If the data or the folder cannot be used, or another process writes there.
            MissingExtraError: If LanceDB is not installed.

        Example:
            >>> from inbedder.search import Index
            >>> rows = [{"text": "The box was crushed", "stars": 2}, {"text": "Great price", "stars": 5}]
            >>> len(Index.create("created.index", rows))
            2
        """
        import_lancedb()
        path = expand_path(folder)
        Storage.check_new(path)
        rows = read_rows(data, text_column=text_column, id_column=id_column, columns=columns)
        if not rows.texts:
            raise InputError("An index needs at least one text.")
        embedder = model if isinstance(model, InBedder) else InBedder(model)
        dimensions = [0 if part is None else part.shape[1] for part in model_vectors.encode_two_layers(embedder, rows.texts[:1])]
        with lock(path):
            index = cls(Storage.create(path, build_schema(rows, *dimensions), embedder.spec), embedder)
            index._append(rows, show_progress_bar)
            index.storage.compact(timedelta(milliseconds=1))  # nobody reads older versions of an unfinished index
            index.storage.make_indexes()
            index.storage.set_metadata(TEXT, **{BUILT_KEY: "yes"})
        return index

    @classmethod
    def open(cls, folder: str | os.PathLike[str], model: InBedder | None = None) -> Index:
        """Open an index.

        Args:
            folder: Path of the index.
            model: The model that it was built with, if it is already loaded; None loads it when it is needed.

        Returns:
            The index, which shows what other processes commit.

        Raises:
            InputError: If there is no index, or it was built with another model.
            MissingExtraError: If LanceDB is not installed.

        Example:
            >>> from inbedder.search import Index
            >>> _ = Index.create("opened.index", ["The box was crushed", "Great price"])
            >>> len(Index.open("opened.index"))
            2
        """
        import_lancedb()
        index = cls(Storage.open(folder), model)
        if not index.storage.is_built:
            logger.warning("%s: the build did not finish. Build it again with the same table; committed rows are kept.", folder)
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
        """Add rows, and skip rows whose id is already in the index; repeat an interrupted call to complete it.

        Args:
            data: A list of texts or a table: a list of dicts, a pandas frame or a pyarrow table.
            text_column: The column of the texts.
            id_column: The column of the ids; None takes the column "id" if there is one, else a hash of each row.
            columns: Columns to store; None stores those of the index. Columns that the data lack stay empty.
            show_progress_bar: Whether to show a progress bar; None shows one for long work in a terminal.

        Returns:
            Number of rows added.

        Raises:
            InputError: If a column or value does not fit, or another process writes.

        Example:
            >>> from inbedder.search import Index
            >>> index = Index.create("grown.index", ["The box was crushed"])
            >>> index.add(["The box was crushed", "Great price"])
            1
        """
        rows = read_rows(data, text_column=text_column, id_column=id_column, columns=columns)
        unknown = [name for name in rows.columns if name not in self.storage.columns]
        if unknown:
            names = format_names(self.storage.columns)
            raise InputError(f"The index has no column {format_names(unknown)}. Select columns with columns=, from: {names}.")
        with lock(self.storage.folder):
            return self._append(rows, show_progress_bar)

    def _append(self, rows: Rows, show_progress_bar: bool | None) -> int:
        """Embed and commit the rows whose ids are new, batch by batch; return their number."""
        import pyarrow as pa

        stored_ids, schema = set(self.storage.list_ids()), self.storage.schema
        new = [number for number, name in enumerate(rows.ids) if name not in stored_ids]
        columns = {name: to_typed_array(values, schema.field(name).type, name) for name, values in rows.columns.items()}
        for start in range(0, len(new), BATCH_ROWS):
            numbers = new[start : start + BATCH_ROWS]
            texts = [rows.texts[number] for number in numbers]
            batch: dict[str, Any] = {ID: [rows.ids[number] for number in numbers], TEXT: texts}
            batch |= {name: column.take(pa.array(numbers)) for name, column in columns.items()}
            batch |= self._embed_texts(texts, show_progress_bar)
            batch |= {field.name: pa.nulls(len(numbers), field.type) for field in schema if field.name not in batch}
            self.storage.append(build_table(batch, schema))
        return len(new)

    def _embed_texts(self, texts: list[str], show_progress_bar: bool | None) -> dict[str, Any]:
        """Compute the columns of vectors, generic and instructed."""
        generic, earlier = model_vectors.encode_two_layers(self.model, texts, show_progress_bar)
        columns = {GENERIC: to_list_array(generic)}
        if earlier is not None:
            columns[EARLIER] = to_list_array(earlier, np.float16)
        for name, metadata in self.storage.instructed.items():
            vectors = model_vectors.encode_instructed(self.model, texts, metadata["instruction"], show_progress_bar)
            columns[name] = to_list_array(vectors)
        return columns

    def delete(self, ids: Sequence[str]) -> int:
        """Delete rows.

        Args:
            ids: Their ids; unknown ids are ignored.

        Returns:
            Number of rows deleted.

        Raises:
            InputError: If another process writes.

        Example:
            >>> from inbedder.search import Index
            >>> index = Index.create("pruned.index", [{"id": "a", "text": "Late"}, {"id": "b", "text": "Broken"}])
            >>> index.delete(["b", "unknown"]), len(index)
            (1, 1)
        """
        if isinstance(ids, str):
            raise InputError("delete takes a list of ids.")
        with lock(self.storage.folder):
            return self.storage.remove([str(name) for name in ids])

    def update(self, records: Sequence[Mapping[str, Any]]) -> int:
        """Change texts, which are embedded again, or other columns. Each batch is committed as a whole.

        Args:
            records: One dict per row: "id", and the columns that change ("text" for the text).

        Returns:
            Number of rows changed.

        Raises:
            InputError: If an id or a column is unknown, a value does not fit, or another process writes.

        Example:
            >>> from inbedder.search import Index
            >>> index = Index.create("changed.index", [{"id": "a", "text": "Late"}, {"id": "b", "text": "Broken"}])
            >>> index.update([{"id": "a", "text": "Two weeks late"}])
            1
        """
        changes = {str(record[ID]): dict(record) for record in records if ID in record}
        if len(changes) < len(records):
            raise InputError('update takes one dict per row, each with an "id" of its own.')
        unknown = sorted({name for change in changes.values() for name in change} - set(self.storage.columns))
        if unknown:
            names = format_names(self.storage.columns)
            raise InputError(f"The index has no column {format_names(unknown)}. Its columns are: {names}.")
        with lock(self.storage.folder):
            missing = sorted(set(changes) - set(self.storage.list_ids()))
            if missing:
                raise InputError(f"There is no row with the id {format_names(missing)}. Add it, or leave it out.")
            for start in range(0, len(changes), BATCH_ROWS):
                self._change(dict(list(changes.items())[start : start + BATCH_ROWS]))
        return len(changes)

    def _change(self, changes: Mapping[str, dict[str, Any]]) -> None:
        """Commit a batch of changes, by id."""
        stored = self.storage.take(list(changes))
        records = [{**record, **changes[record[ID]], ID: record[ID]} for record in stored.to_pylist()]
        columns = [name for name in self.storage.columns if name not in (ID, TEXT)]
        rows = read_rows([{name: record[name] for name in (ID, TEXT, *columns)} for record in records])
        arrays = {name: to_typed_array(rows.columns[name], stored.schema.field(name).type, name) for name in columns}
        arrays |= {ID: rows.ids, TEXT: rows.texts} | self._embed_texts(rows.texts, False)
        self.storage.merge(build_table(arrays, stored.schema))

    def instruct(self, instruction: str, *, sample: int | None = None, show_progress_bar: bool | None = None) -> str:
        """Add a column of vectors under an instruction, so that searches under it encode only the query.

        Repeat an interrupted call to complete it; until then, searches encode the texts whose vector is missing.

        Args:
            instruction: A question, or ``@name``.
            sample: Number of texts to encode; the vectors of the others are mapped from the generic ones (see ``guided``). None
                encodes every text.
            show_progress_bar: Whether to show a progress bar; None shows one for long work in a terminal.

        Returns:
            The column's name.

        Raises:
            InputError: If the sample is too small, or another process writes.

        Example:
            >>> from inbedder.search import Index
            >>> index = Index.create("instructed.index", ["The box was crushed", "Great price"])
            >>> column = index.instruct("What is the complaint about?")
            >>> index.info()["instructions"][0]["missing"]
            0
        """
        import pyarrow as pa

        name = model_vectors.name_column(instruction)
        with lock(self.storage.folder):
            if name not in self.storage.instructed:
                dimension = len(model_vectors.encode_instructed(self.model, ["a"], instruction)[0])
                metadata = {"instruction": resolve_instruction(instruction), "read": "all" if sample is None else str(sample)}
                self.storage.add_column(pa.field(name, pa.list_(pa.float32(), dimension), metadata=metadata))
            missing = sorted(self.storage.list_ids(f"{name} IS NULL"))
            mapped_vectors = {}
            if sample is not None and missing:
                rows = read_ordered(self.storage, [ID, TEXT, *self.storage.general_columns])
                estimated = estimate_vectors(self.model, rows, instruction, sample)
                mapped_vectors = dict(zip(rows[ID].to_pylist(), estimated, strict=True))
            for start in range(0, len(missing), BATCH_ROWS):
                ids = missing[start : start + BATCH_ROWS]
                if not mapped_vectors:
                    rows = self.storage.take(ids, [ID, TEXT])
                    ids, texts = rows[ID].to_pylist(), rows[TEXT].to_pylist()
                    vectors = model_vectors.encode_instructed(self.model, texts, instruction, show_progress_bar)
                else:
                    vectors = np.stack([mapped_vectors[row_id] for row_id in ids])
                self.storage.merge(pa.table({ID: ids, name: to_list_array(vectors)}))
        return name

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
        """Find the rows most similar to a query under an instruction.

        Args:
            query: The text to search for.
            instruction: The question about query and texts, or ``@name``; None keeps the generic order.
            k: Maximum number of rows to return.
            candidates: Number of rows nearest by generic vectors that are reranked under the instruction.
            where: An SQL filter on the columns, such as "stars < 3".
            hybrid: Whether BM25 also finds candidates; the two lists are fused by reciprocal rank.
            weight: Weight of the generic score, from 0 to 1, or "auto"; the instructed score has the remainder.

        Returns:
            At most k rows, the best first: id, text, the other columns, score and generic_score; with an instruction also
            instructed_score and the model's answer.

        Raises:
            InputError: If the index is empty, the filter or the query cannot be used, or a number is out of range.
            MissingExtraError: If pandas is not installed.

        Example:
            >>> from inbedder.search import Index
            >>> rows = [{"text": "The box was crushed", "stars": 2}, {"text": "Great price", "stars": 5}]
            >>> index = Index.create("searched.index", rows)
            >>> index.search("damaged parcel", "What is the complaint about?", where="stars < 3")["text"].tolist()
            ['The box was crushed']
        """
        if where is not None:
            check_filter(self.storage, where)
        return search_rows(
            self.storage, self.model, query, instruction, k=k, candidates=candidates, where=where, hybrid=hybrid, weight=weight
        )

    def ask(self, question: str, *, sample: int = 1000, k: int | str = "auto", seed: int = 0) -> ClusterResult:
        """Group all texts by a new question, for which only a sample is read.

        Args:
            question: The question, or ``@name``.
            sample: Number of texts to read. The vectors of the others are estimated from their generic vectors (see ``guided``),
                unless ``instruct`` has stored them.
            k: Number of groups, or "auto".
            seed: Seed of the sample and of the groups.

        Returns:
            The groups, with a note on how well the estimate fits held-out texts. Only the sample and the most typical texts have
            answers. The index of the frame has the ids.

        Raises:
            InputError: If the index is empty, or the sample or k cannot be used.

        Example:
            >>> from inbedder.search import Index
            >>> index = Index.create("asked.index", ["The box was crushed", "The box was open", "Great price", "Fair price"])
            >>> index.ask("What is it about?", k=2).sizes
            [2, 2]
        """
        rows = read_rows_to_group(self.storage, question)
        return group_rows(self.model, rows, question, sample=sample, k=k, seed=seed)

    def compact(self, keep: timedelta = VERSION_RETENTION) -> None:
        """Merge small files, update the search indexes and remove old versions.

        Args:
            keep: Age at which replaced versions are removed; processes that read a younger one can continue.

        Raises:
            InputError: If another process writes, or the disk is full.

        Example:
            >>> from inbedder.search import Index
            >>> index = Index.create("compact.index", ["The box was crushed", "Great price"])
            >>> index.compact()
            >>> len(index)
            2
        """
        with lock(self.storage.folder):
            self.storage.compact(keep)
            self.storage.make_indexes()

    def verify(self) -> list[str]:
        """Read the whole index and check it.

        Returns:
            One line per problem; empty for a sound index.

        Example:
            >>> from inbedder.search import Index
            >>> Index.create("verified.index", ["The box was crushed", "Great price"]).verify()
            []
        """
        return checks.verify_index(self.storage)

    def info(self) -> dict[str, Any]:
        """Describe the index.

        Returns:
            Rows, columns, model, engine, instructions, versions, bytes on disk and whether the build has finished.

        Example:
            >>> from inbedder.search import Index
            >>> index = Index.create("described.index", ["The box was crushed", "Great price"])
            >>> index.info()["rows"], index.info()["engine"]
            (2, 'exact: every vector is compared')
        """
        return checks.describe_index(self.storage)
