"""What a task is, and how its rows are read: shipped, or from a local folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from inbedder.errors import InputError, MissingExtraError
from inbedder.package_data import find_data_folder
from inbedder.prompting.templates import read_prompts
from inbedder.vectors import Vectors

if TYPE_CHECKING:
    from inbedder_evaluation.item_results import Outcomes

SHIPPED = find_data_folder("inbedder_evaluation", "data")
Encode = Callable[[Sequence[str], "str | Sequence[str]"], Vectors]
Similarity = Callable[[Sequence[str], Sequence[str], Sequence[str]], Vectors]
Rows = list[dict[str, Any]]
Scores = dict[str, float]


@dataclass(frozen=True)
class TaskInfo:
    """Where a task comes from."""

    name: str
    """Name of the task."""
    main_score: str
    """The score that tables show."""
    source: str
    """File or folder."""
    revision: str
    """Hash of the rows and of what is asked of them."""
    licence: str
    """Licence of the data."""
    citation: str
    """Who made it."""
    quoted: bool = True
    """Whether results may hold a prompt with one of its texts."""


class Task(Protocol):
    """A measurement of an embedder on one set."""

    info: TaskInfo
    """Where it comes from."""
    seeded: bool
    """Whether its scores depend on a seed (k-means)."""

    def get_first_input(self) -> tuple[str, str]:
        """A text and its instruction, to show that the instruction reaches the prompt."""
        ...

    def evaluate(self, encode: Encode, seed: int) -> Scores:
        """Scores of an embedder; ``encode`` takes texts and an instruction (or one per text)."""
        ...


@runtime_checkable
class Itemised(Protocol):
    """A task that also says what became of each of its items."""

    def evaluate_items(self, encode: Encode, seed: int) -> Outcomes:
        """The scores of ``evaluate``, and the items behind the main one."""
        ...


class NothingToMeasureError(InputError):
    """The data allow other tasks, but not this one."""


def read_instructions(task: str) -> dict[str, str]:
    """The instructions of a task by criterion, from ``prompts/evaluation.yaml``."""
    return dict(read_prompts("evaluation")[task])


def add_protocol(name: str, protocol: str) -> str:
    """A task's name, with the protocol of its clustering where it is not the default."""
    return name if protocol == "k-means" else f"{name}, {protocol} protocol"


def read_hub(path: str, revision: str, config: str | None = None, split: str = "test") -> Rows:
    """Read a set of the hub.

    Args:
        path: Its id.
        revision: The commit.
        config: Its configuration, where it has several.
        split: Which split.

    Returns:
        Its rows.

    Raises:
        MissingExtraError: When datasets is not installed.
        InputError: When the hub is not in reach or has no such set.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingExtraError("datasets", "evaluation") from error
    try:
        return [dict(row) for row in load_dataset(path, config, revision=revision, split=split)]
    except Exception as error:
        raise InputError(
            f"Cannot read {path} ({config or 'default'}, {revision[:8]}) from the hub ({type(error).__name__}: {error}). "
            "With a network try again; without, leave --hub out or give --data."
        ) from error


def fingerprint(rows: Rows, instructions: object = None) -> str:
    """Hash of rows and the questions asked of them, which stands for the revision of local data.

    Args:
        rows: The rows.
        instructions: What is asked, where the rows do not hold it.

    Returns:
        16 hexadecimal digits.
    """
    content = json.dumps([rows, instructions], sort_keys=True, ensure_ascii=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]
