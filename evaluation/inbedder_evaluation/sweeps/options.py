"""Options that the sweeps share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.cli.model_options import with_model_options
from inbedder.cli.parameters import with_parameters
from inbedder.errors import InputError
from inbedder_evaluation.command import Hub, Protocol
from inbedder_evaluation.embedders import Embedder
from inbedder_evaluation.evaluation_protocol import add_protocol_options
from inbedder_evaluation.results import Cell
from inbedder_evaluation.runner import run
from inbedder_evaluation.tasks import Data, build_tasks

AWARENESS = ("IntentEmotion", "InstructSTSB", "triplets", "NYT two-criteria")
"""The tasks on which an embedder must follow instructions."""
PARAMETER = "sweep"
"""Name of a command's parameter that takes the options."""

Output = Annotated[Path, typer.Option("-o", "--output", help="A .json file; the figure has the same name and ends in .png.")]
Source = Annotated[Path | None, typer.Option("--data", help="Folder of known sets, measured in addition to the shipped ones.")]
Task = Annotated[list[str], typer.Option(help="Only tasks whose name contains this; repeatable.")]
Limit = Annotated[int | None, typer.Option(min=10, help="Maximum number of rows per set of the folder.")]


@dataclass(frozen=True)
class Sweep:
    """Results file, data and model options of a sweep."""

    output: Path
    """The results file (.json)."""
    data: Data
    """The data to measure."""
    tasks: tuple[str, ...]
    """Parts of the names of the tasks to measure."""
    model_options: dict[str, Any]
    """Keyword arguments of ``InBedder``."""

    @property
    def figure(self) -> Path:
        """Path of the figure."""
        return self.output.with_suffix(".png")

    def measure(self, embedders: Sequence[Embedder]) -> dict[str, dict[str, Any]]:
        """Measure embedders, and write the results.

        Args:
            embedders: The embedders to compare.

        Returns:
            Main scores by embedder and task.

        Raises:
            InputError: If the output is not a .json file.
        """
        if self.output.suffix != ".json":
            raise InputError(f"{self.output} must be a .json file; the figure is written next to it.")
        return _group_by_model(run(embedders, build_tasks(self.data, self.tasks), self.output, seeds=range(1)))


def _group_by_model(cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
    scores: dict[str, dict[str, Any]] = {}
    for cell in cells:
        if cell.vectors == "raw":
            scores.setdefault(cell.model, {})[cell.task] = cell.scores[cell.main_score]
    return scores


def with_sweep_options(
    omitted_options: Collection[str] = (), tasks: Sequence[str] = AWARENESS, limit: int | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of a sweep and of its models to a command.

    Args:
        omitted_options: Parameters of the model's options that the command varies itself.
        tasks: Default of ``--task``.
        limit: Default of ``--limit``.

    Returns:
        A decorator. It replaces the command's parameter ``sweep``, a ``Sweep``, by one parameter per option.
    """
    defaults = {"task": list(tasks), "limit": limit}
    shared = [
        parameter.replace(default=defaults.get(parameter.name, parameter.default))
        for parameter in inspect.signature(_make_sweep, eval_str=True).parameters.values()
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run_command(**arguments: Any) -> None:
            sweep = _make_sweep(**{parameter.name: arguments.pop(parameter.name) for parameter in shared})
            command(**arguments, **{PARAMETER: sweep})

        return with_model_options(with_parameters(command, run_command, shared, replaced=PARAMETER), omitted_options)

    return decorate


def _make_sweep(
    *,
    output: Output,
    data: Source = None,
    hub: Hub = False,
    protocol: Protocol = "k-means",
    task: Task,
    limit: Limit,
    model_options: dict[str, Any],
) -> Sweep:
    options = add_protocol_options(model_options, protocol)
    return Sweep(output, Data(data, hub, limit=limit, protocol=protocol), tuple(task), options)
