"""For pandas: ``import inbedder.integrations.pandas``, then ``table["text"].inbedder.encode("What is the complaint about?")``."""

from typing import Any

from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import loaded

try:
    import pandas as pd
except ImportError as error:
    raise MissingExtraError("pandas", "mini") from error


@pd.api.extensions.register_series_accessor("inbedder")
class TextColumn:
    """What a model says of a column of texts, on the column's own index."""

    def __init__(self, column: Any) -> None:
        """Take a column of texts."""
        self._column = column

    def encode(self, instruction: str | None = None, model: str | InBedder = "mini", **options: Any) -> Any:
        """Embed the texts, as ``InBedder.encode`` does: a table of one row per text and one column per dimension."""
        return pd.DataFrame(loaded(model).encode(self._column, instruction, **options), index=self._column.index)

    def answer(self, instruction: str, model: str | InBedder = "mini", **options: Any) -> Any:
        """Answer the instruction for each text, as ``InBedder.answer`` does: a column of answers."""
        return pd.Series(loaded(model).answer(self._column, instruction, **options), index=self._column.index)
