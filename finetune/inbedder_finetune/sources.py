"""Where rows come from: files of several kinds, read as a stream, and sets of the hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from inbedder.errors import InputError, MissingExtraError, RecipeError
from inbedder.io.formats import BadRow
from inbedder.io.tables import stream_rows
from inbedder_finetune.recipe import AtLeast0, Count, Section, Whole
from inbedder_finetune.synthetic.compose import compose

Record = Mapping[str, Any]
UNASKED = "@unasked"
"""``taught_as`` of rows that are drawn to the teachers' vectors of their texts alone."""


@dataclass(frozen=True)
class Source(Section):
    """One set of question-answer rows: a table or a set of the hub."""

    path: str = ""
    """File, relative to ``data.folder`` or, when it is not there, to the shipped ``finetune/written``."""
    hub: str | None = None
    """Id on the hub, in place of a file."""
    config: str | None = None
    """Configuration of the hub's set."""
    split: str = "train"
    """Split of the hub's set."""
    revision: str | None = None
    """Commit of the hub's set."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Where input, instruction and output stand, when they have other names than these or context, question and answer."""
    cap: Count | None = None
    """At most so many rows, drawn with the recipe's seed."""
    weight: AtLeast0 = 1.0
    """Each row comes so often: 2 is twice, 0.5 a drawn half."""
    min_characters: Whole = 0
    """Leave out rows whose input is shorter."""
    max_characters: Count | None = None
    """Leave out rows whose input is longer."""
    keep: Mapping[str, str] = field(default_factory=dict)
    """Keep only rows whose fields hold these values, such as ``{split: train}``."""
    drop_flags: tuple[str, ...] = ()
    """Leave out rows whose ``flags`` hold one of these, such as needs_options."""
    choices: str | None = None
    """Multiple choice: the field that lists the choices; the answer field then holds the right one's number or letter."""
    licence: str | None = None
    """Licence of the data, for the card."""
    instructions: tuple[str, ...] = ()
    """When given, each row is asked one of these (drawn) in place of its own instruction."""
    only: tuple[str, ...] = ()
    """When given, only rows that carry one of these instructions."""
    answer_from: str = "output"
    """The field that holds the answer, such as a label of another criterion."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """When given, the answers are renamed by this table and rows with other answers are left out."""
    keywords: Whole = 0
    """When above 0, the answer is so many most salient words of the input (``keywords``), for questions of topic."""
    answered_by: str | None = None
    """When given, a model, as ``InBedder`` takes it, whose answers take the place of the rows' own: for questions that the set
    does not answer. Rows to which it has no answer are left out."""
    beside: str | None = None
    """When given, a file whose inputs are put in front of or behind the row's own, one each: the answer stays."""
    questions: Count = 2
    """Questions per composed text (yaml files of phrases)."""
    long: bool = False
    """Composed opinions of about fifteen sentences in place of six."""
    target: Literal["answer", "text", "both"] = "answer"
    """What the vector is drawn to: "answer", "text" (the row's own text: what it is about stays whole) or "both"."""
    taught_as: str | None = None
    """What teachers are asked in place of the row's own question, so that many wordings are drawn to one vector; "@unasked" is
    their vector of the text without any, and an empty string leaves the row to its answer alone
    (``objective.teacher_loss: cosine``)."""
    per_text: Count | None = None
    """At most so many rows per text."""


def file_records(path: Path, questions: int = 2, *, long: bool = False) -> Iterator[tuple[int, Any]]:
    """The records of a file.

    Args:
        path: A table as ``inbedder.io.tables`` reads it, or a yaml file of phrases (see ``composing``).
        questions: Questions per composed text, of a yaml file.
        long: Whether its texts are long.

    Yields:
        Row number from 1, and the record, or a text that says why the row cannot be read.

    Raises:
        RecipeError: When the file is missing, of another kind, or cannot be read.
    """
    if not path.exists():
        raise RecipeError(f"No file {path}. Set data.folder to where the recipe's sources lie.")
    try:
        if path.suffix == ".yaml":
            yield from enumerate(compose(path, questions=questions, long=long), 1)
            return
        for number, row in stream_rows(str(path)):
            yield number, str(row) if isinstance(row, BadRow) else row
    except (OSError, UnicodeDecodeError, yaml.YAMLError, LookupError) as error:
        raise RecipeError(f"Cannot read {path}: {error}") from error
    except InputError as error:
        raise RecipeError(str(error)) from error


def hub_records(source: Source) -> Iterator[tuple[int, Any]]:
    """The records of a set of the hub, streamed.

    Args:
        source: Its id, configuration, split and commit.

    Yields:
        Row number from 1, and the record.

    Raises:
        RecipeError: When the hub is not in reach or has no such set.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingExtraError("datasets", "finetune") from error
    assert source.hub is not None
    try:
        rows = load_dataset(source.hub, source.config, split=source.split, revision=source.revision, streaming=True)
        yield from enumerate(rows, 1)
    except Exception as error:
        raise RecipeError(
            f"Cannot read {source.hub} from the hub ({type(error).__name__}: {error}). With a network try again; without, "
            "download the set and give its file as path."
        ) from error
