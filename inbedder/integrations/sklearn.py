"""For scikit-learn: a transformer from texts to their vectors under an instruction.

make_pipeline(InstructedVectorizer(instruction="What is the complaint about?"), LogisticRegression()).fit(texts, labels)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from inbedder.arguments import entries
from inbedder.embedder import InBedder
from inbedder.errors import InputError
from inbedder.integrations.shared_models import loaded
from inbedder.prompting.templates import check_strings
from inbedder.vectors import Vectors


class InstructedVectorizer(TransformerMixin, BaseEstimator):
    """Texts to vectors; nothing is fitted. Clones share the model, and pickles hold its name, not its weights."""

    def __init__(
        self,
        instruction: str | None = None,
        model: str | InBedder = "mini",
        *,
        cache: str | None = None,
        normalize_embeddings: bool = False,
        batch_size: int = 32,
    ) -> None:
        """Set parameters; the model is loaded when it is first used.

        Args:
            instruction: What is asked of every text, as ``InBedder.encode`` takes it; a parameter to search over.
            model: The name of a model, or an ``InBedder``.
            cache: A folder that keeps vectors, for a name: a search over instructions then reads each text once under each.
            normalize_embeddings: Scale vectors to length 1.
            batch_size: Most texts in one pass.
        """
        self.instruction = instruction
        self.model = model
        self.cache = cache
        self.normalize_embeddings = normalize_embeddings
        self.batch_size = batch_size

    def fit(self, X: Any, y: Any = None) -> InstructedVectorizer:  # noqa: N803 (scikit-learn's name)
        """Check the texts; nothing is learned from them.

        Args:
            X: n texts: a list, an array, a column of a table.
            y: Not used.

        Returns:
            The transformer itself.

        Raises:
            InputError: When X is not a list of strings.
        """
        _texts(X)
        self._n_features_out = loaded(self.model, self.cache).get_sentence_embedding_dimension()
        return self

    def transform(self, X: Any) -> Vectors:  # noqa: N803 (scikit-learn's name)
        """Embed texts.

        Args:
            X: n texts: a list, an array, a column of a table.

        Returns:
            float32, shape (n, d); a table after ``set_output(transform="pandas")``.

        Raises:
            InputError: When X is not a list of strings.
        """
        options = {"batch_size": self.batch_size, "normalize_embeddings": self.normalize_embeddings}
        model = loaded(self.model, self.cache)
        return model.encode(_texts(X), self.instruction, show_progress_bar=False, **options)  # type: ignore[arg-type]

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the dimensions: inbedder0, inbedder1, ...

        Args:
            input_features: Not used.

        Returns:
            An array of d names.
        """
        count = loaded(self.model, self.cache).get_sentence_embedding_dimension()
        return np.array([f"inbedder{number}" for number in range(count)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        """Always: nothing is fitted."""
        return True

    def __sklearn_tags__(self) -> Any:
        """A transformer of one column of strings that needs no fit."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.requires_fit = False
        return tags


def _texts(values: Any) -> list[str]:
    """A list of texts, of a column of a table or of a table of one column."""
    if isinstance(values, str):
        raise InputError("X must be a list of texts, not one string. Put it in a list: [...].")
    columns = getattr(values, "columns", None)
    if columns is not None and len(columns) == 1:
        values = values[columns[0]]
    return check_strings("X", entries("X", values))
