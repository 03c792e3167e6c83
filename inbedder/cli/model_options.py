"""Command-line options of a model, generated from the fields of ``inbedder.options``."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from typing import Annotated, Any

import typer

from inbedder.cli.parameters import make_parameter, with_parameters
from inbedder.errors import InbedderError
from inbedder.grouping.cluster_options import ClusterOptions
from inbedder.options import EncodingOptions, ModelOptions, OptionInfo, Options, Reencoding, get_option_info

PARAMETER = "model_options"
"""Name of a command's parameter that takes the options."""


def with_model_options(command: Callable[..., None], omitted_options: Collection[str] = ()) -> Callable[..., None]:
    """Add the options of a model to a command.

    Args:
        command: A function whose parameter ``model_options`` takes the given options as keyword arguments of ``InBedder``.
        omitted_options: Parameters of the options that the command sets itself and has no flag for, such as "pooling" or
            "re_enc_n".

    Returns:
        A function for typer with one parameter per option instead. It checks the options before it calls the command.
    """
    generated = [parameter for parameter in _generate_parameters() if parameter.name not in omitted_options]
    collect = partial(_collect_options, chooses_pooling="pooling" not in omitted_options)
    return _with_collected(command, PARAMETER, generated, collect)


def _with_collected(
    command: Callable[..., None],
    name: str,
    generated: Sequence[inspect.Parameter],
    collect: Callable[[dict[str, Any]], dict[str, Any]],
) -> Callable[..., None]:
    """Replace a command's parameter by generated ones, whose values are collected for it."""

    def run(**arguments: Any) -> None:
        values = {parameter.name: arguments.pop(parameter.name, None) for parameter in generated}
        command(**arguments, **{name: collect(values)})

    return with_parameters(command, run, generated, replaced=name)


def with_cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's parameter ``cluster_options`` by one parameter per option of a grouping."""
    generated = [_make_parameter(ClusterOptions, option) for option in _list_offered_options(ClusterOptions)]
    return _with_collected(command, "cluster_options", generated, _collect_cluster_options)


def _collect_cluster_options(values: dict[str, Any]) -> dict[str, Any]:
    """Check the options that the user set."""
    options = {name: value for name, value in values.items() if value is not None}
    try:
        checked = ClusterOptions.parse(**options)
    except InbedderError as error:
        raise typer.BadParameter(str(error)) from error
    return {name: getattr(checked, name) for name in options}


_OPTION_CLASSES: tuple[Any, ...] = (ModelOptions, EncodingOptions, Reencoding)
_PREFIXES = {Reencoding: "re_enc_"}
"""Prefix of the parameters of a class."""


@cache
def _generate_parameters() -> tuple[inspect.Parameter, ...]:
    """Generate one parameter per option, once for all commands."""
    return tuple(_make_parameter(kind, option) for kind in _OPTION_CLASSES for option in _list_offered_options(kind))


def _list_offered_options(kind: Any) -> list[dataclasses.Field[Any]]:
    return [option for option in dataclasses.fields(kind) if get_option_info(option).flags is not None]


def _make_parameter(kind: Any, option: dataclasses.Field[Any]) -> inspect.Parameter:
    """Make the parameter of an option; its value is None unless the user sets it, since a stored model may set the default."""
    info = get_option_info(option)
    default = str(option.default) if option.default else False
    typer_option = typer.Option(
        *(info.flags or ()), help=info.help, rich_help_panel=_choose_panel(kind, info), show_default=default
    )
    annotation: Any = Annotated[info.kind | None, typer_option]
    return make_parameter(_PREFIXES.get(kind, "") + option.name, annotation)


def _choose_panel(kind: Any, info: OptionInfo) -> str:
    """Choose the panel of an option in --help; pairs of flags need wide columns and get a panel of their own."""
    if any("/" in flag for flag in info.flags or ()):
        return "Switches"
    return "Vectors" if kind is EncodingOptions and info.panel == "Model" else info.panel


def _collect_options(values: dict[str, Any], chooses_pooling: bool) -> dict[str, Any]:
    """Check the options that the user set; those of re-enc need --pooling re-enc if the command has that flag."""
    prefix = _PREFIXES[Reencoding]
    options = {name: value for name, value in values.items() if value is not None}
    reencoding = {name.removeprefix(prefix): options.pop(name) for name in list(options) if name.startswith(prefix)}
    if reencoding and chooses_pooling and options.get("pooling") not in ("re-enc", "re_encode"):
        flags = ", ".join(flag for option in _list_offered_options(Reencoding) for flag in get_option_info(option).flags or ())
        raise typer.BadParameter("these options need --pooling re-enc.", param_hint=flags)
    try:
        if reencoding:
            options["reencoding"] = Reencoding(**reencoding)
        checked = Options.parse(**options)
    except InbedderError as error:
        raise typer.BadParameter(str(error)) from error
    parts = {option.name: part for part in checked for option in dataclasses.fields(part)}
    return {name: getattr(parts[name], name) for name in options}
