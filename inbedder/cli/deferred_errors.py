"""Errors of outputs, raised after all outputs were tried, so that one that fails does not keep the others from being written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inbedder.errors import InbedderError, InputError, describe_error, format_value


class DeferredErrors:
    """Collects the errors of several outputs."""

    def __init__(self) -> None:
        """Start without errors."""
        self.messages: list[str] = []

    @contextmanager
    def collect(self, path: Path) -> Iterator[None]:
        """Collect the error of a block that writes ``path`` for ``raise_all``, and go on after the block."""
        try:
            yield
        except InbedderError as error:
            self.messages.append(str(error))
        except Exception as error:
            self.messages.append(f"Cannot write {format_value(str(path))}: {describe_error(error)}")

    def raise_all(self) -> None:
        """Raise InputError if a block failed."""
        if self.messages:
            raise InputError("\nerror: ".join(self.messages))
