"""Loading a command's model and table, and embedding its texts."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.shared_options import INPUT, TextColumn, print_message, print_text_columns
from inbedder.errors import format_count
from inbedder.runtime.timings import time_stage

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.io.outputs import VectorWriter
    from inbedder.io.tables import Table, TextStream
    from inbedder.option_types import FormatKwargs, PrecisionName


def load_embedder(model: str, **options: Any) -> InBedder:
    """Load a model and print its dtype and device."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    gc.disable()  # what is imported stays
    try:
        with time_stage("loading"):
            from inbedder.embedder import InBedder

            embedder = InBedder(model, **options)
    finally:
        gc.freeze()
        gc.enable()
    print_message(f"{model} computes in {embedder.compute_dtype} on {embedder.backbone.model.device}.")
    return embedder


@dataclass(frozen=True)
class TableOptions:
    """The options of commands that read a table."""

    text_column: TextColumn = None
    delimiter: Annotated[
        str | None,
        typer.Option(
            help="Field delimiter of a .csv, such as ';' or tab; default: detected.",
            callback=_parse_delimiter,
            rich_help_panel=INPUT,
        ),
    ] = None
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip unreadable rows instead of stopping.", rich_help_panel=INPUT)
    ] = False

    traces: Annotated[
        str | None,
        typer.Option(
            help="Read agents' traces (OpenTelemetry, OpenInference, Langfuse, OpenAI), a text per conversation or step.",
            metavar="conversation|step",
            callback=_check_unit,
            rich_help_panel=INPUT,
        ),
    ] = None

    def read(self, source: str) -> Table:
        """Read a table; print the detected text column and the number of skipped rows."""
        from inbedder.io.tables import read_table

        table = read_table(source, self.text_column, skip_bad=self.skip_bad, delimiter=self.delimiter, traces=self.traces)
        self._print_reading(source, table)
        return table

    @contextmanager
    def stream(self, source: str) -> Iterator[TextStream]:
        """Open a stream of texts; print the detected text column and the number of skipped rows."""
        from inbedder.io.tables import open_texts

        with open_texts(source, self.text_column, skip_bad=self.skip_bad, delimiter=self.delimiter, traces=self.traces) as texts:
            self._print_reading(source, texts)
            yield texts

    def _print_reading(self, source: str, texts: Table | TextStream) -> None:
        from inbedder.io.formats import get_file_type

        if not (self.text_column or self.traces) and source != "-" and get_file_type(Path(source)) != ".txt":
            print_text_columns(texts.text_columns)
        if texts.skipped:
            print_message(f"Skipped {format_count(texts.skipped, 'bad row')}.")


def _parse_delimiter(value: str | None) -> str | None:
    """Parse a delimiter: one character, or tab."""
    delimiter = {"tab": "\t", r"\t": "\t"}.get(value or "", value)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise typer.BadParameter("give one character, such as ';', or tab.", param_hint="--delimiter")
    return delimiter


def _check_unit(value: str | None) -> str | None:
    from inbedder.io.traces import UNITS

    if value is not None and value not in UNITS:
        raise typer.BadParameter(f"choose {' or '.join(UNITS)}.", param_hint="--traces")
    return value


def embed_stream(embedder: InBedder, texts: TextStream, instruction: str | None, writer: VectorWriter, batch_size: int) -> int:
    """Embed texts window by window and write the vectors; return their dimension."""
    from tqdm.auto import tqdm

    from inbedder.encoding.prompt_runner import MIN_PROGRESS_TEXTS, PROMPTS_PER_WINDOW
    from inbedder.errors import TextCutWarning

    options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": False}
    stream, width, truncated_count = iter(texts), 0, 0
    with tqdm(total=texts.count, desc="Embedding", unit=" texts", disable=texts.count < MIN_PROGRESS_TEXTS or None) as bar:
        while window := list(islice(stream, PROMPTS_PER_WINDOW)):
            rows, strings = (list(column) for column in zip(*window, strict=True))
            with warnings.catch_warnings(record=True) as caught_warnings:
                warnings.simplefilter("always")
                vectors = embedder.encode(strings, instruction, **options)
            for warning in caught_warnings:
                if isinstance(warning.message, TextCutWarning):
                    truncated_count += warning.message.count
                else:
                    warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
            writer.add(rows, strings, vectors)
            width = vectors.shape[1]
            bar.update(len(rows))
    if truncated_count:
        from inbedder.options import TRUNCATION_SIDES

        limit, side = embedder.tokenizer.max_length, TRUNCATION_SIDES[embedder.tokenizer.truncation_side]
        print_message(
            f"warning: {truncated_count} of {texts.count} texts were cut at their {side} to {limit} tokens; see --max-length."
        )
    return width


def embed_guided(
    embedder: InBedder,
    texts: list[str],
    instructions: Sequence[str | None],
    sample: int,
    batch_size: int,
    precision: PrecisionName | None = None,
) -> list[Any]:
    """Embed texts under each instruction by encoding a sample and mapping the rest; print the quality of the map."""
    from inbedder.encoding.guided import encode_general

    generic = encode_general(embedder, texts, batch_size=batch_size, precision="float32")
    results = []
    for instruction in instructions:
        options: FormatKwargs = {"batch_size": batch_size, "precision": precision}
        vectors = embedder.encode_guided(texts, instruction, sample=sample, generic=generic, **options)
        count = len(texts if vectors.sample is None else vectors.sample)
        quality = f"; the rest were mapped (cosine to encoded vectors: {vectors.cosine:.2f})" if count < len(texts) else ""
        print_message(f"{count} of {len(texts)} texts were encoded under {instruction or 'no question'!r}{quality}.")
        results.append(vectors)
    return results
