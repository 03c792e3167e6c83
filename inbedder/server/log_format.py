"""The log of a server: one line per record, without tracebacks, which hold paths and texts."""

from __future__ import annotations

import copy
import logging
import traceback

LINE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""Time, level, logger and message."""


class LogFormatter(logging.Formatter):
    """A formatter that keeps the first line of a message, and of an exception where it was raised."""

    def __init__(self) -> None:
        """Use the format of the server's log."""
        super().__init__(LINE_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line."""
        line = copy.copy(record)
        line.msg, line.args = record.getMessage().partition("\n")[0].rstrip(), None
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line.msg += f" ({describe_origin(error)})"
        line.exc_info = line.exc_text = line.stack_info = None
        return super().format(line)


def describe_origin(error: BaseException) -> str:
    """Describe an exception by its type and where it was raised, without its message and any path.

    Args:
        error: The exception.

    Returns:
        Such as "ValueError in encode, line 12".

    Example:
        >>> from inbedder.server.log_format import describe_origin
        >>> describe_origin(ValueError("a text"))
        'ValueError'
    """
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__ + (f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else "")


def configure_log(debug: bool = False) -> None:
    """Write the log of this process to stderr.

    Args:
        debug: Write tracebacks, too, and the details of errors.

    Example:
        >>> from inbedder.server.log_format import configure_log
        >>> configure_log()
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(LINE_FORMAT) if debug else LogFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for name in ("inbedder", "uvicorn"):
        logging.getLogger(name).setLevel(logging.DEBUG if debug else logging.INFO)
