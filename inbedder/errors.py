"""Errors a user can act on: every message says what went wrong and what to do next."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence

MAX_CHARACTERS = 200
"""Characters of a name or value in a message."""
MAX_NAMES = 20
"""Names of a list in a message."""

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = MAX_CHARACTERS


def format_value(value: object) -> str:
    """Format any value for a message: its repr, cut at 200 characters, so that no control sequence reaches a terminal."""
    text = _SHORT.repr(value)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def format_names(names: Sequence[object]) -> str:
    """Format names for a message: the first twenty, each by ``format_value`` and separated by commas, and how many more there are."""
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return ", ".join(map(format_value, names[:MAX_NAMES])) + more


class InbedderError(Exception):
    """Base of all errors raised on purpose by this package."""


class InputError(InbedderError):
    """The texts, the table or the options given cannot be used as they are."""


class ModelError(InbedderError):
    """A model cannot be found, loaded or used for what was asked."""


class TemplateError(InbedderError):
    """A prompt template or a named instruction is unknown or malformed."""


class RecipeError(InbedderError):
    """A fine-tuning recipe is malformed, or the data it names cannot be read."""


class MissingExtraError(InbedderError):
    """An optional dependency is not installed; the message holds the install line."""

    def __init__(self, package: str, extra: str | None = None) -> None:
        """Name the missing package, and the extra that installs it (None: the package on its own)."""
        requirement = f"'inbedder[{extra}]'" if extra else package
        super().__init__(f"This needs {package}. Install it with: pip install {requirement}")


class UnreadableTextWarning(UserWarning):
    """Texts are in a language or in signs that the model cannot read."""

    def __init__(self, message: str, share: float = 0.0) -> None:
        """Say so, and keep their share."""
        super().__init__(message)
        self.share = share


class TextCutWarning(UserWarning):
    """Texts were cut to fit the longest prompt."""

    def __init__(self, message: str, count: int = 0) -> None:
        """Say so, and keep how many."""
        super().__init__(message)
        self.count = count
