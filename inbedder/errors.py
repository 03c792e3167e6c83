"""Errors that a user can act on: every message says what went wrong and what to do next."""

from __future__ import annotations

import errno
import re
import reprlib
from collections.abc import Sequence
from importlib import import_module
from typing import Any

MAX_CHARACTERS = 200
"""Maximum length of a name or value in a message."""
MAX_NAMES = 20
"""Maximum number of names in a message."""

OUT_OF_MEMORY = (
    "Not enough memory. Use a smaller batch size (--batch-size), fewer or shorter texts, a smaller model, or a machine with more "
    "memory."
)
_MEMORY_MESSAGE = re.compile(r"out of memory|can(no|')t allocate memory|not enough memory|bad_alloc", re.IGNORECASE)
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = MAX_CHARACTERS


def format_value(value: object) -> str:
    """Format any value for a message: its repr, at most 200 characters long, so that no control sequence reaches a terminal."""
    text = _REPR.repr(value)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def format_names(names: Sequence[object]) -> str:
    """Format names for a message: the first twenty, each as ``format_value`` writes it, and the number of the others."""
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return ", ".join(map(format_value, names[:MAX_NAMES])) + more


def format_count(number: int, noun: str) -> str:
    """Format a number with its noun, which gets an "s" unless there is one: "1 text", "1,200 texts"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out: a MemoryError, torch's RuntimeError, the system's error, or one that these caused."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if isinstance(error, RuntimeError) and _MEMORY_MESSAGE.search(str(error)):
        return True
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)


def describe_error(error: BaseException) -> str:
    """Describe an error that was not raised on purpose: its type and message, or what to do if memory was short."""
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    return f"{type(error).__name__}: {error}".removesuffix(": ")


class InbedderError(Exception):
    """Base class of all errors that this package raises on purpose.

    Example:
        >>> from inbedder import InBedder, InbedderError
        >>> try:
        ...     InBedder(layer=99)
        ... except InbedderError as error:
        ...     print(type(error).__name__)
        ModelError
    """


class InputError(InbedderError):
    """Texts, a table or an argument cannot be used as they are: a wrong type, a value out of range, an unknown name."""


class ModelError(InbedderError):
    """A model cannot be found, cannot be loaded, or cannot do what the call requests."""


class TemplateError(InbedderError):
    """A prompt template or a named instruction is unknown or malformed."""


class RecipeError(InbedderError):
    """A fine-tuning recipe is malformed, or its data cannot be read."""


RELEASED = False
"""Whether an index has the package; until then it is installed from a clone."""


def format_install(extras: str = "", distribution: str = "inbedder") -> str:
    """Format the command that installs a distribution of the project with extras."""
    name = distribution if RELEASED else "." + distribution.removeprefix("inbedder").replace("-", "/")
    return f"pip install '{name}{f'[{extras}]' if extras else ''}'" + ("" if RELEASED else " in the clone")


class MissingExtraError(InbedderError):
    """An optional dependency is not installed; the message contains the install command."""

    def __init__(self, package: str, extra: str | None = None, distribution: str = "inbedder") -> None:
        """Set the missing package and the extra that installs it; with None the message names the package itself."""
        command = format_install(extra, distribution) if extra else f"pip install {package}"
        super().__init__(f"This needs {package}. Install it with: {command}")


def import_extra(module: str, extra: str) -> Any:
    """Import a module of an optional dependency, or raise ``MissingExtraError`` with the extra that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(module.partition(".")[0].replace("_", "-"), extra) from error


class UnreadableTextWarning(UserWarning):
    """Texts are in a language or script that the model cannot read."""

    def __init__(self, message: str, share: float = 0.0) -> None:
        """Set the message and the share of such texts, 0 to 1."""
        super().__init__(message)
        self.share = share


class TextCutWarning(UserWarning):
    """Texts were truncated to fit the maximum prompt length."""

    def __init__(self, message: str, count: int = 0) -> None:
        """Set the message and the number of truncated texts."""
        super().__init__(message)
        self.count = count
