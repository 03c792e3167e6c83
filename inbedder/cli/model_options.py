"""The options of a model on the command line, made of the fields of ``inbedder.options``: each command offers the same ones."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from inbedder.errors import InbedderError
from inbedder.options import EncodingOptions, ModelOptions, Options, Reencoding, info_of

PARAMETER = "model_options"
"""The parameter of a command that takes the options, as keyword arguments of ``InBedder``."""


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a model.

    Args:
        command: A function with a parameter ``model_options``, which is given those that are not at their default, by
            ``InBedder``'s names.

    Returns:
        The function as typer takes it: that parameter is replaced by an option for each field. The options are checked before
        the command begins.
    """
    signature = inspect.signature(command, eval_str=True)
    before = [parameter for name, parameter in signature.parameters.items() if name != PARAMETER]
    offered = {_parameter_name(kind, option): option for kind in OFFERED for option in _offered(kind)}
    generated = [_parameter(name, option) for name, option in offered.items()]

    def run(**arguments: Any) -> None:
        values = {name: arguments.pop(name) for name in offered}
        command(**arguments, **{PARAMETER: _collect(values)})

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = signature.replace(parameters=[*map(_as_keyword, before), *generated])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*before, *generated]}
    return run


OFFERED: tuple[Any, ...] = (ModelOptions, EncodingOptions, Reencoding)
_PREFIXES = {Reencoding: "re_enc_"}


def _offered(kind: Any) -> list[dataclasses.Field[Any]]:
    return [option for option in dataclasses.fields(kind) if info_of(option).flags is not None]


def _parameter_name(kind: Any, option: dataclasses.Field[Any]) -> str:
    return _PREFIXES.get(kind, "") + option.name


def _as_keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _parameter(name: str, option: dataclasses.Field[Any]) -> inspect.Parameter:
    info = info_of(option)
    kind = info.kind if option.default is not None and option.default != () else info.kind | None
    described = typer.Option(*(info.flags or ()), help=info.help, rich_help_panel=info.panel, show_default=bool(option.default))
    default = option.default if option.default != () else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, described])


def _collect(values: dict[str, Any]) -> dict[str, Any]:
    """The options that are not at their default, checked."""
    prefix = _PREFIXES[Reencoding]
    reencoding = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
    options = {name: value for name, value in values.items() if not name.startswith(prefix) and value is not None}
    if Reencoding(**reencoding) != Reencoding():
        if options.get("pooling") not in ("re-enc", "re_encode"):
            flags = ", ".join(flag for option in _offered(Reencoding) for flag in info_of(option).flags or ())
            raise typer.BadParameter("they are for --pooling re-enc.", param_hint=flags)
        options["reencoding"] = Reencoding(**reencoding)
    try:
        return Options.parse(**options).changes()
    except InbedderError as error:
        raise typer.BadParameter(str(error)) from error
