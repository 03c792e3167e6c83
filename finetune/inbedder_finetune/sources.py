"""Data sources of recipes: files and data sets on the hub, read as streams."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from inbedder.errors import InputError, RecipeError, format_names, format_value
from inbedder.io.formats import BadRow
from inbedder.io.tables import stream_rows
from inbedder_finetune.recipe import NonNegativeFloat, NonNegativeInt, PositiveInt, Section, UserPath
from inbedder_finetune.synthetic.compose import compose

Record = Mapping[str, Any]
RowColumns = Mapping[Literal["input", "instruction", "output"], str]


@dataclass(frozen=True)
class Source(Section):
    """One set of question-answer rows: a table, or a data set on the hub."""

    path: UserPath = ""
    """File, relative to ``data.folder``; a file missing there is looked up in the shipped ``finetune/written``."""
    hub: str | None = None
    """Id of a data set on the hub, instead of ``path``."""
    config: str | None = None
    """Configuration of the hub data set."""
    split: str = "train"
    """Split of the hub data set."""
    revision: str | None = None
    """Branch, tag or commit of the hub data set, also abbreviated to seven digits as the hub's pages show it; the result records
    the whole commit. None takes the newest."""
    fields: RowColumns = field(default_factory=dict)
    """Column names of input, instruction and output. By default they are found under these names or context, question, answer."""
    cap: PositiveInt | None = None
    """Maximum number of rows, sampled with the recipe's seed."""
    weight: NonNegativeFloat = 1.0
    """How often each row is used: 2 repeats all rows, 0.5 samples half of them."""
    min_characters: NonNegativeInt = 0
    """Skip rows whose input is shorter."""
    max_characters: PositiveInt | None = None
    """Skip rows whose input is longer."""
    keep: Mapping[str, str] = field(default_factory=dict)
    """Keep only rows whose columns hold these values, such as ``{split: train}``."""
    drop_flags: tuple[str, ...] = ()
    """Skip rows whose column ``flags`` holds one of these, such as needs_options."""
    choices: str | None = None
    """Multiple choice: the column that lists the choices; the answer column then holds the number or letter of the right one."""
    licence: str | None = None
    """Licence of the data, for the model card."""
    instructions: tuple[str, ...] = ()
    """Instructions that replace the rows' own; ``wordings`` of them are sampled per row."""
    question_names: bool = False
    """Whether a row's instruction may be the name of a question of ``finetune/questions``, whose wordings then replace it."""
    wordings: PositiveInt = 1
    """Number of sampled wordings per row, each of which makes a row: the same answer under several wordings."""
    keep_instructions: tuple[str, ...] = ()
    """Keep only rows with one of these instructions."""
    answer_column: str = "output"
    """The column that holds the answer, such as a label of another criterion."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Answer -> new answer; rows with other answers are skipped."""
    keywords: NonNegativeInt = 0
    """Number of salient words of the input that become the answer (``keywords``), for questions about the topic; 0 keeps the
    answers."""
    distractors: str | None = None
    """A file whose inputs are put before or after the rows' inputs, one each; the answers stay."""
    questions_per_text: PositiveInt = 2
    """Number of questions per composed text (YAML files of phrases)."""
    target: Literal["answer", "text"] = "answer"
    """What the vector is trained towards: the vector of the "answer", or of the row's own "text"."""
    max_rows_per_text: PositiveInt | None = None
    """Maximum number of rows per text."""


def read_records(path: Path, questions_per_text: int = 2) -> Iterator[tuple[int, Any]]:
    """Stream the records of a file.

    Args:
        path: A table that ``inbedder.io.tables`` can read, or a YAML file of phrases (see ``synthetic.compose``).
        questions_per_text: Questions per composed text of a YAML file.

    Yields:
        Row number from 1, and the record, or a message that says why the row cannot be read.

    Raises:
        RecipeError: If the file is missing, of an unknown type, or unreadable.
    """
    if not path.exists():
        raise RecipeError(f"{path} does not exist. Set data.folder to the folder of the recipe's sources.")
    try:
        if path.suffix == ".yaml":
            yield from enumerate(compose(path, questions_per_text=questions_per_text), 1)
            return
        for number, row in stream_rows(str(path)):
            yield number, str(row) if isinstance(row, BadRow) else row
    except (OSError, UnicodeDecodeError, yaml.YAMLError, LookupError) as error:
        raise RecipeError(f"Cannot read {path}: {error}") from error
    except InputError as error:
        raise RecipeError(str(error)) from error


def filter_records(
    records: Iterable[tuple[int, Any]], name: str, keep: Mapping[str, str], drop_flags: Sequence[str]
) -> Iterator[tuple[int, Any]]:
    """Filter records by their columns; messages in place of records pass.

    Args:
        records: Row numbers and records.
        name: Name of the source, for the message.
        keep: Column -> the value of the records to keep; booleans are "true" and "false".
        drop_flags: Values in the column ``flags`` of the records to drop; a cell is a list of flags, or one flag.

    Yields:
        Row numbers and records.

    Raises:
        RecipeError: If no record has a column of the filter, so that it would keep none, or drop none.
    """
    names = [*keep, *(("flags",) if drop_flags else ())]
    columns: dict[str, None] = {}
    for number, record in records:
        if not isinstance(record, Mapping):
            yield number, record
            continue
        columns.update(dict.fromkeys(record))
        flags = record.get("flags") or ()
        is_flagged = not set(drop_flags).isdisjoint([flags] if isinstance(flags, str) else flags)
        if not is_flagged and all(_as_text(record.get(key)) == value for key, value in keep.items()):
            yield number, record
    if columns and (missing := [column for column in names if column not in columns]):
        raise RecipeError(
            f"{name} has no column {format_value(missing[0])} to filter by. Its columns are: {format_names(list(columns))}. "
            "Correct keep or drop_flags."
        )


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def resolve_revision(source: Source) -> Source:
    """Resolve the revision of a source to its commit; a source that is not on the hub is returned unchanged.

    Args:
        source: A source.

    Returns:
        The source with a whole commit as its ``revision``. The hub itself rejects abbreviated ones.

    Raises:
        RecipeError: If the hub is unreachable, or has no such data set or revision.
    """
    if source.hub is None or re.fullmatch("[0-9a-f]{40}", source.revision or ""):
        return source
    from huggingface_hub import HfApi

    try:
        if re.fullmatch("[0-9a-f]{7,39}", source.revision or ""):
            history = HfApi().list_repo_commits(source.hub, repo_type="dataset")
            commits = [commit.commit_id for commit in history if commit.commit_id.startswith(str(source.revision))]
        else:
            commits = [str(HfApi().dataset_info(source.hub, revision=source.revision).sha)]
    except Exception as error:
        raise _make_hub_error(source.hub, error) from error
    if len(commits) != 1:
        raise RecipeError(f"{source.hub} has no commit {source.revision} on its main branch. Correct revision, or leave it out.")
    return replace(source, revision=commits[0])


def _make_hub_error(name: str, error: Exception) -> RecipeError:
    return RecipeError(
        f"Cannot read {name} from the hub ({type(error).__name__}: {error}). Check the network connection, or download the data "
        "set and set path to its file."
    )


def read_hub_records(source: Source) -> Iterator[tuple[int, Any]]:
    """Stream the records of a data set on the hub.

    Args:
        source: Id, configuration, split and commit of the data set.

    Yields:
        Row number from 1, and the record.

    Raises:
        RecipeError: If the hub is unreachable or has no such data set.
    """
    from datasets import load_dataset

    source = resolve_revision(source)
    assert source.hub is not None
    try:
        rows = load_dataset(source.hub, source.config, split=source.split, revision=source.revision, streaming=True)
        yield from enumerate(rows, 1)
    except Exception as error:
        raise _make_hub_error(source.hub, error) from error
