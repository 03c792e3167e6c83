"""An adapter for pandas: import it, then call ``table["text"].inbedder.encode("What is the complaint about?")``."""

from typing import Any

from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import load_shared

try:
    import pandas as pd
except ImportError as error:
    raise MissingExtraError("pandas", "tables") from error


@pd.api.extensions.register_series_accessor("inbedder")
class TextColumn:
    """The accessor ``.inbedder`` of a column of texts; results have the column's index.

    Example:
        >>> import pandas
        >>> import inbedder.integrations.pandas
        >>> column = pandas.Series(["The box was crushed", "Two weeks late"])
        >>> column.inbedder.encode("What is the complaint about?").shape
        (2, 384)
        >>> len(column.inbedder.answer("What is the complaint about?"))
        2
    """

    def __init__(self, column: Any) -> None:
        """Wrap a column of texts."""
        self._column = column

    def encode(self, instruction: str | None = None, model: str | InBedder = "mini", **options: Any) -> Any:
        """Embed the texts.

        Args:
            instruction: A question, ``@name``, or None.
            model: An ``InBedder`` or the name of one.
            **options: Keywords of ``InBedder.encode``.

        Returns:
            A data frame of one row per text and one column per dimension.
        """
        return pd.DataFrame(load_shared(model).encode(self._column, instruction, **options), index=self._column.index)

    def answer(self, instruction: str, model: str | InBedder = "mini", **options: Any) -> Any:
        """Answer the instruction for each text.

        Args:
            instruction: A question, or ``@name``.
            model: An ``InBedder`` or the name of one.
            **options: Keywords of ``InBedder.answer``.

        Returns:
            A series of answers.
        """
        return pd.Series(load_shared(model).answer(self._column, instruction, **options), index=self._column.index)
