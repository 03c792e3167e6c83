"""Errors a user can act on: every message says what went wrong and what to do next."""


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

    def __init__(self, package: str, extra: str) -> None:
        """Name the missing package and the extra that brings it."""
        super().__init__(f"This needs {package}. Install it with: pip install 'inbedder[{extra}]'")


class TextCutWarning(UserWarning):
    """Texts were cut at their end to fit the longest prompt."""

    def __init__(self, message: str, count: int = 0) -> None:
        """Say so, and keep how many."""
        super().__init__(message)
        self.count = count
