"""How texts are grouped: each option defined once, with its default, help and check.

``cluster``, ``inbedder cluster``, ``/v1/clusters``, ``InstructedClusterer`` and the provenance of saved groups derive their
options from these fields. A new option needs its field here (and in ``ClusterKwargs``, for type checkers) and the code that
obeys it. This module imports nothing heavy, because ``inbedder --help`` reads it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, TypedDict

from inbedder.arguments import check_bool, check_integer, check_seed, check_string
from inbedder.errors import InputError, format_names, format_value
from inbedder.grouping.names.namers import NAMERS, check_namer
from inbedder.options import CheckedOptions, make_option

if TYPE_CHECKING:
    from inbedder.grouping.names.namers import Namer

METHODS = ("k-means", "agglomerative", "hdbscan")
MAX_PAIRED_ROWS = 20_000
"""Maximum number of rows for methods that compare all pairs."""
PANEL = "Groups"


def _check_number(_name: str, value: Any) -> int | str:
    if value == "auto" and isinstance(value, str):
        return "auto"
    if isinstance(value, str):
        raise InputError(f"k must be 'auto' or a number, not {value!r}.")
    return check_integer("k", value)


def _check_method(_name: str, value: Any) -> str:
    if value not in METHODS:
        raise InputError(f"Unknown method {format_value(value)}. Choose one of: {', '.join(METHODS)}.")
    return str(value)


def _check_min_size(name: str, value: Any) -> int | None:
    return None if value is None else check_integer(name, value, 2)


def _check_levels(name: str, value: Any) -> tuple[int, int] | None:
    """Check numbers of branches and of groups: two integers, or a string such as "5,20"."""
    if value is None:
        return None
    numbers = value.split(",") if isinstance(value, str) else value
    try:
        branches, groups = (int(number) if isinstance(number, str) else check_integer(name, number) for number in numbers)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be numbers of branches and of groups, such as 5,20, not {format_value(value)}.") from None
    if not 1 <= branches <= groups:
        raise InputError(f"{name} must be numbers of branches and of at least as many groups, not {branches},{groups}.")
    return branches, groups


@dataclass(frozen=True)
class ClusterOptions(CheckedOptions):
    """The options of a grouping."""

    k: int | str = make_option("auto", "Number of groups, or auto for at most 50.", check=_check_number, flags=None)
    seed: int = make_option(0, "Seed of k-means.", check=check_seed, kind=int, panel=PANEL)
    levels: tuple[int, int] | None = make_option(
        None,
        "Numbers of branches and of groups, such as 5,20; default: branches from seven groups on.",
        check=_check_levels,
        panel=PANEL,
    )
    method: str = make_option(
        "k-means",
        "k-means, agglomerative (a tree) or hdbscan (some texts may fit no group).",
        check=_check_method,
        panel=PANEL,
    )
    min_size: int | None = make_option(
        None,
        "Minimum number of texts in an hdbscan group; default: 10, or 1% of the texts.",
        check=_check_min_size,
        kind=int,
        panel=PANEL,
    )
    namer: str | Callable[..., Any] = make_option(
        "phrases",
        "Names of the groups: " + ", ".join(f"{name} ({entry.help})" for name, entry in NAMERS.items()) + ".",
        check=check_namer,
        panel=PANEL,
    )
    apart_from: str | None = make_option(
        None,
        'A question whose groups these shall not follow, such as "Is it positive or negative?".',
        check=check_string,
        panel=PANEL,
    )
    no_answer: bool = make_option(
        False,
        "Leave out of the groups what gives no answer, such as 'Oh.' to a topic.",
        check=check_bool,
        kind=bool,
        flags=("--no-answer",),
        panel=PANEL,
    )
    exact: bool = make_option(
        False,
        "Give the same groups, names and page on every machine: the model computes in float64, and vectors are rounded.",
        check=check_bool,
        kind=bool,
        flags=("--exact",),
        panel=PANEL,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_size is not None and self.method != "hdbscan":
            raise InputError(f"{self.method} does not take min_size. Leave it out, or choose hdbscan.")
        if self.method == "hdbscan" and self.k != "auto":
            raise InputError("hdbscan finds the number of groups itself. Leave k at auto, or choose k-means or agglomerative.")
        if self.exact and self.method != "k-means":
            raise InputError(f"exact groups by k-means, not by {self.method}. Leave one of the two out.")
        if self.levels is not None and (self.k != "auto" or self.method == "hdbscan"):
            raise InputError("levels fixes the number of groups. Leave k at auto, and choose k-means or agglomerative.")

    @property
    def count(self) -> int | str:
        """The number of groups, or "auto"."""
        return self.k if self.levels is None else self.levels[1]

    @classmethod
    def parse(cls, **options: Any) -> ClusterOptions:
        """Make options of keyword arguments; an unknown one is an error that lists the known ones."""
        names = [option.name for option in fields(cls)]
        if unknown := sorted(options.keys() - set(names)):
            raise InputError(f"There is no option {format_names(unknown)}. cluster takes: {format_names(names)}.")
        return cls(**options)

    def check_count(self, count: int) -> None:
        """Check the options for a number of texts, before the model runs.

        Args:
            count: Number of texts.

        Raises:
            InputError: If k is larger, or the method cannot take as many.
        """
        if self.method != "k-means" and count > MAX_PAIRED_ROWS:
            raise InputError(
                f"{self.method} compares all pairs of rows and takes at most {MAX_PAIRED_ROWS:,} rows, not {count:,}. "
                "Choose k-means."
            )
        if self.count != "auto" and not 1 <= int(self.count) <= count:
            raise InputError(f"k must be 'auto' or a number from 1 to {count} (the number of texts), not {self.count!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Return the options as a JSON-serializable dictionary; the namer must be a name."""
        return asdict(self)


class ClusterKwargs(TypedDict, total=False):
    """The keyword arguments of ``cluster`` that are fields of ``ClusterOptions``, besides k and seed."""

    levels: tuple[int, int] | str | None
    method: str
    min_size: int | None
    namer: str | Namer
    apart_from: str | None
    no_answer: bool
    exact: bool


def make_cluster_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Make the signature of a function whose keyword arguments are ``ClusterOptions``."""
    signature = inspect.signature(function)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    names = {parameter.name for parameter in parameters}
    options = [
        inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=option.type)
        for option in fields(ClusterOptions)
        if option.name not in names
    ]
    return signature.replace(parameters=[*parameters, *options])
