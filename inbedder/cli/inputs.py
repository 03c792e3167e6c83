"""What commands begin with: a model, a table, vectors from a sample."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbedder.cli.options import say, say_columns

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.tables import Table


def load_embedder(model: str, **options: Any) -> InBedder:
    """Load a model and say what it computes in."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from inbedder.embedder import InBedder

    embedder = InBedder(model, **options)
    say(f"{model} computes in {embedder.precision} on {embedder.backbone.model.device}.")
    return embedder


def read_texts(source: str, text_column: str | None, skip_bad: bool) -> Table:
    """Read a table; say which column was taken for the texts and how many bad rows were left out."""
    from inbedder.formats import kind_of
    from inbedder.tables import read_table

    table = read_table(source, text_column, skip_bad=skip_bad)
    if text_column is None and source != "-" and kind_of(Path(source)) != ".txt":
        say_columns([table.text_column])
    if table.skipped:
        say(f"{table.skipped} bad rows were left out.")
    return table


def guided_vectors(
    embedder: InBedder, texts: list[str], instructions: Sequence[str | None], sample: int, batch_size: int
) -> list[Any]:
    """Vectors under each instruction from a sample that is read; how well that went is said."""
    generic = embedder.encode(texts, batch_size=batch_size)
    found = []
    for instruction in instructions:
        vectors = embedder.encode_guided(texts, instruction, sample=sample, generic=generic, batch_size=batch_size)
        read = len(texts if vectors.sample is None else vectors.sample)
        mapped = f", the others mapped (cosine of mapped and read vectors {vectors.cosine:.2f})" if read < len(texts) else ""
        say(f"{read} of {len(texts)} texts were read under {instruction or '@generic'!r}{mapped}.")
        found.append(vectors)
    return found
