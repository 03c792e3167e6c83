"""Protocols of tasks, and functions to read their instructions and rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from inbedder.errors import InputError, MissingExtraError
from inbedder.prompting.templates import read_prompts
from inbedder.runtime.package_data import find_data_folder
from inbedder.vectors.vectors import Vectors

if TYPE_CHECKING:
    from inbedder_evaluation.item_results import Outcomes

SHIPPED = find_data_folder("inbedder_evaluation", "data")
Encode = Callable[[Sequence[str], "str | Sequence[str]"], Vectors]
Similarity = Callable[[Sequence[str], Sequence[str], Sequence[str]], Vectors]
Rows = list[dict[str, Any]]
Scores = dict[str, float]


@dataclass(frozen=True)
class TaskInfo:
    """Name, data and provenance of a task."""

    name: str
    """Name of the task."""
    main_score: str
    """Name of the score that tables show."""
    source: str
    """File, folder or hub id of the data."""
    revision: str
    """Hash of the rows and instructions, or commit of the data."""
    licence: str
    """Licence of the data."""
    citation: str
    """Authors of the data."""
    quoted: bool = True
    """Whether results may quote its texts."""


class Task(Protocol):
    """A measurement of embedders on one set."""

    info: TaskInfo
    """Its name, data and provenance."""
    seeded: bool
    """Whether its scores depend on a seed (k-means)."""

    def get_first_input(self) -> tuple[str, str]:
        """Return a text and its instruction, to check that the instruction reaches the prompt."""
        ...

    def evaluate(self, encode: Encode, seed: int) -> Scores:
        """Compute the scores of an embedder; ``encode`` takes texts and an instruction (or one per text)."""
        ...


@runtime_checkable
class Itemized(Protocol):
    """A task that also reports a result for each of its items."""

    def evaluate_items(self, encode: Encode, seed: int) -> Outcomes:
        """Compute the scores of ``evaluate`` and the items of the main score."""
        ...


@runtime_checkable
class AsksSeveral(Protocol):
    """A task that asks several questions about the same texts."""

    texts: Sequence[str]
    """The texts, as passed to ``encode``."""
    instructions: Sequence[str]
    """The instructions, each for all texts."""


class NothingToMeasureError(InputError):
    """Raised when the data do not support this task, but may support others."""


def read_wordings(task: str) -> dict[str, list[str]]:
    """Read all wordings of the instructions of a task by criterion from ``prompts/evaluation.yaml``."""
    return {key: [value] if isinstance(value, str) else list(value) for key, value in read_prompts("evaluation")[task].items()}


def read_instructions(task: str) -> dict[str, str]:
    """Read the instructions of a task by criterion from ``prompts/evaluation.yaml``: the first wording of each."""
    return {key: wordings[0] for key, wordings in read_wordings(task).items()}


def add_protocol(name: str, protocol: str) -> str:
    """Append the clustering protocol to a task's name unless it is the default."""
    return name if protocol == "k-means" else f"{name}, {protocol} protocol"


def read_hub(path: str, revision: str, config: str | None = None, split: str = "test") -> Rows:
    """Read a set of the hub.

    Args:
        path: Hub id of the set.
        revision: Commit of the set.
        config: Configuration; None for sets that have only one.
        split: Name of the split.

    Returns:
        The rows of the split.

    Raises:
        MissingExtraError: If datasets is not installed.
        InputError: If the hub cannot be reached or has no such set.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingExtraError("datasets", "mteb", "inbedder-evaluation") from error
    try:
        return [dict(row) for row in load_dataset(path, config, revision=revision, split=split)]
    except Exception as error:
        raise InputError(
            f"Cannot read {path} ({config or 'default'}, {revision[:8]}) from the hub ({type(error).__name__}: {error}). "
            "Check the network and try again, or leave --hub out, or give --data."
        ) from error


def fingerprint(rows: Rows, instructions: object = None) -> str:
    """Hash rows and instructions; the hash serves as the revision of local data.

    Args:
        rows: The rows.
        instructions: Instructions or settings that the rows do not contain.

    Returns:
        16 hexadecimal digits.
    """
    content = json.dumps([rows, instructions], sort_keys=True, ensure_ascii=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]
