"""What commands begin with: a model, a table, vectors from a sample."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbedder.cli.shared_options import say, say_columns

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.io.outputs import VectorWriter
    from inbedder.io.tables import Table, TextStream


def load_embedder(model: str, **options: Any) -> InBedder:
    """Load a model and say what it computes in."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from inbedder.embedder import InBedder

    embedder = InBedder(model, **options)
    say(f"{model} computes in {embedder.precision} on {embedder.backbone.model.device}.")
    return embedder


def read_texts(source: str, text_column: list[str] | None, skip_bad: bool, delimiter: str | None = None) -> Table:
    """Read a table; say which column was taken for the texts and how many bad rows were left out."""
    from inbedder.io.tables import read_table

    table = read_table(source, text_column, skip_bad=skip_bad, delimiter=delimiter)
    _say_what_was_read(source, text_column, table)
    return table


def _say_what_was_read(source: str, text_column: list[str] | None, read: Table | TextStream) -> None:
    from inbedder.io.formats import kind_of

    if not text_column and source != "-" and kind_of(Path(source)) != ".txt":
        say_columns(read.text_columns)
    if read.skipped:
        say(f"{read.skipped} bad rows were left out.")


@contextmanager
def stream_texts(
    source: str, text_column: list[str] | None, skip_bad: bool, delimiter: str | None = None
) -> Iterator[TextStream]:
    """As ``read_texts``, of texts that are not kept."""
    from inbedder.io.tables import open_texts

    with open_texts(source, text_column, skip_bad=skip_bad, delimiter=delimiter) as texts:
        _say_what_was_read(source, text_column, texts)
        yield texts


def embed_stream(embedder: InBedder, texts: TextStream, instruction: str | None, writer: VectorWriter, batch_size: int) -> int:
    """Embed texts window by window and write each window's vectors; gives their length."""
    from tqdm.auto import tqdm

    from inbedder.encoding.language_check import warn_of_unreadable
    from inbedder.encoding.prompt_runner import LONG_WORK, WINDOW
    from inbedder.errors import TextCutWarning

    stream, width, cut = iter(texts), 0, 0
    with tqdm(total=texts.count, desc="Embedding", unit=" texts", disable=texts.count < LONG_WORK or None) as bar:
        while window := list(islice(stream, WINDOW)):
            rows, strings = (list(column) for column in zip(*window, strict=True))
            if not width:
                warn_of_unreadable(strings, embedder)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                vectors = embedder.encode(strings, instruction, batch_size=batch_size, show_progress_bar=False)
            for warning in caught:
                if isinstance(warning.message, TextCutWarning):
                    cut += warning.message.count
                else:
                    warnings.warn(warning.message, stacklevel=2)
            writer.add(rows, strings, vectors)
            width = vectors.shape[1]
            bar.update(len(rows))
    if cut:
        from inbedder.options import TRUNCATION_SIDES

        limit, where = embedder.tokenizer.max_length, TRUNCATION_SIDES[embedder.tokenizer.truncation_side]
        say(f"warning: {cut} of {texts.count} texts were cut at their {where} to {limit} tokens; --max-length raises it.")
    return width


def vectors_of(
    embedder: InBedder, texts: list[str], instructions: Sequence[str], guided: int | None, batch_size: int
) -> Sequence[Any]:
    """Vectors under each instruction, from a sample that is read where ``guided`` says how many texts that are."""
    if guided is not None:
        return guided_vectors(embedder, texts, instructions, guided, batch_size)
    from inbedder.encoding.language_check import warn_of_unreadable

    warn_of_unreadable(texts, embedder)
    return list(embedder.encode_many(texts, instructions, batch_size=batch_size))


def guided_vectors(
    embedder: InBedder, texts: list[str], instructions: Sequence[str | None], sample: int, batch_size: int
) -> list[Any]:
    """Vectors under each instruction from a sample that is read; how well that went is said."""
    from inbedder.encoding.language_check import warn_of_unreadable

    warn_of_unreadable(texts, embedder)
    generic = embedder.encode(texts, batch_size=batch_size)
    found = []
    for instruction in instructions:
        vectors = embedder.encode_guided(texts, instruction, sample=sample, generic=generic, batch_size=batch_size)
        read = len(texts if vectors.sample is None else vectors.sample)
        mapped = f", the others mapped (cosine of mapped and read vectors {vectors.cosine:.2f})" if read < len(texts) else ""
        say(f"{read} of {len(texts)} texts were read under {instruction or 'no question'!r}{mapped}.")
        found.append(vectors)
    return found
