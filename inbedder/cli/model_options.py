"""The options of a model on the command line, made of the fields of ``inbedder.options``: each command offers the same ones."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer

from inbedder.errors import InbedderError
from inbedder.options import EncodingOptions, ModelOptions, Options, Reencoding, get_option_info

PARAMETER = "model_options"
"""The parameter of a command that takes the options, as keyword arguments of ``InBedder``."""


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a model.

    Args:
        command: A function with a parameter ``model_options``, which takes those that the user gave, by ``InBedder``'s names.

    Returns:
        The function as typer takes it: that parameter is replaced by an option for each field. The options are checked before
        the command begins.
    """
    signature = inspect.signature(command, eval_str=True)
    before = [parameter for name, parameter in signature.parameters.items() if name != PARAMETER]
    generated = _generate_parameters()

    def run(**arguments: Any) -> None:
        values = {parameter.name: arguments.pop(parameter.name, None) for parameter in generated}
        command(**arguments, **{PARAMETER: _collect(values)})

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = signature.replace(parameters=[*map(_as_keyword, before), *generated])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*before, *generated]}
    return run


OFFERED: tuple[Any, ...] = (ModelOptions, EncodingOptions, Reencoding)
_PREFIXES = {Reencoding: "re_enc_"}


@cache
def _generate_parameters() -> tuple[inspect.Parameter, ...]:
    """A parameter per option, made once for all commands."""
    return tuple(_parameter(_parameter_name(kind, option), option) for kind in OFFERED for option in _offered(kind))


def _offered(kind: Any) -> list[dataclasses.Field[Any]]:
    return [option for option in dataclasses.fields(kind) if get_option_info(option).flags is not None]


def _parameter_name(kind: Any, option: dataclasses.Field[Any]) -> str:
    return _PREFIXES.get(kind, "") + option.name


def _as_keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _parameter(name: str, option: dataclasses.Field[Any]) -> inspect.Parameter:
    """An option whose value is None unless the user gave one: its default may be a stored model's, not the field's."""
    info = get_option_info(option)
    default = str(option.default) if option.default else False
    described = typer.Option(*(info.flags or ()), help=info.help, rich_help_panel=info.panel, show_default=default)
    annotation: Any = Annotated[info.kind | None, described]  # type: ignore[name-defined]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _collect(values: dict[str, Any]) -> dict[str, Any]:
    """The options that the user gave, checked."""
    prefix = _PREFIXES[Reencoding]
    options = {name: value for name, value in values.items() if value is not None}
    reencoding = {name.removeprefix(prefix): options.pop(name) for name in list(options) if name.startswith(prefix)}
    if reencoding and options.get("pooling") not in ("re-enc", "re_encode"):
        flags = ", ".join(flag for option in _offered(Reencoding) for flag in get_option_info(option).flags or ())
        raise typer.BadParameter("they are for --pooling re-enc.", param_hint=flags)
    try:
        if reencoding:
            options["reencoding"] = Reencoding(**reencoding)
        checked = Options.parse(**options)
    except InbedderError as error:
        raise typer.BadParameter(str(error)) from error
    parts = {option.name: part for part in checked for option in dataclasses.fields(part)}
    return {name: getattr(parts[name], name) for name in options}
